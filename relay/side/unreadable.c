#include "relay/side/unreadable.h"

#include "ordering/settler.h"
#include "relay/base/backoff.h"
#include "relay/base/utf8.h"
#include "relay/queue/pace.h"
#include "relay/queue/queue.h"
#include "relay/settle/round.h"
#include "relay/settle/settle.h"
#include "relay/side/unreadable_search.h"
#include "sql_text.h"

#include <stdlib.h>

#define ROWS_MAX 1000 /* that are known at once: each statement is sent their ids */
#define HOLD_US (1 * SECOND_US)
#define SUSPECT_US (60 * SECOND_US) /* two failures within that make a suspicion */
#define ALL_US (60 * SECOND_US)     /* how often all are tried again: rows are mended, or deleted */
#define FRESH_US (250 * MS_US)      /* what was tried so shortly before a claim is not tried again for it */
#define TRY_US (50 * MS_US)         /* and else the claim comes again by then */
#define CAUSE_MAX 300               /* bytes of what the database said */

static const struct backoff search_backoff = {.base_us = 5 * SECOND_US, .max_us = 60 * SECOND_US};

bool unreadable_open(struct queue *queue, struct error *err)
{
    struct unreadable *unreadable = &queue->unreadable;
    const struct sql_variable *v = queue->sql.variables;
    return (unreadable->ids_sql = sql_render(sql_unreadable_ids, v, err)) &&
           (unreadable->key_ids_sql = sql_render(sql_unreadable_ids_of_key, v, err)) &&
           (unreadable->where_sql = sql_render(sql_unreadable_where, v, err)) &&
           (unreadable->read_sql = sql_render(sql_unreadable_read, v, err)) &&
           (unreadable->known_sql = sql_render(sql_unreadable_known, v, err));
}

void unreadable_close(struct queue *queue)
{
    struct unreadable *unreadable = &queue->unreadable;
    free(unreadable->ids_sql);
    free(unreadable->key_ids_sql);
    free(unreadable->where_sql);
    free(unreadable->read_sql);
    free(unreadable->known_sql);
    free(unreadable->ids);
    free(unreadable->rows);
    unreadable_search_free(unreadable->search);
}

static size_t place_of(const struct unreadable *unreadable, int64_t id)
{
    size_t place = 0;
    while (place < unreadable->count && unreadable->ids[place] != id)
        place++;
    return place;
}

void unreadable_claimed(struct queue *queue)
{
    queue->unreadable.read_some = true;
}

void unreadable_claim_failed(struct queue *queue, const struct claim_plan *plan, const struct round *round,
                             instant_us now)
{
    struct unreadable *unreadable = &queue->unreadable;
    if (!round->claim || round->failed_at < round_before_claim(round) || round->refusal != REFUSAL_OF_ROW)
        return;
    bool again = unreadable->suspected_at > 0 && now - unreadable->suspected_at < SUSPECT_US;
    unreadable->suspected_at = now;
    if (unreadable->search || now < unreadable->search_at || !(again || unreadable->eager))
        return;
    unreadable->search = unreadable_search_claim(queue->config, plan);
    unreadable->held_until = now + HOLD_US;
}

bool unreadable_settle_failed(struct queue *queue, const struct round *round, instant_us now)
{
    struct unreadable *unreadable = &queue->unreadable;
    const struct settlement *s = &round->job->settlement;
    if (!queue->config->where || round->refusal != REFUSAL_OF_ROW ||
        !settler_looks_on(s, round->failed_at - round->settle_at))
        return false;
    if (!unreadable->search && now >= unreadable->search_at)
        unreadable->search = unreadable_search_settlement(s);
    return unreadable->search != NULL;
}

instant_us unreadable_claims_at(const struct queue *queue)
{
    const struct unreadable *unreadable = &queue->unreadable;
    return unreadable->search && !unreadable->search->again ? unreadable->held_until : 0;
}

/* ---- what a claim has met ---- */

void unreadable_met(struct queue *queue, struct lane *lane, unsigned failures, instant_us sent_at)
{
    const struct queue_config *config = queue->config;
    struct unreadable *unreadable = &queue->unreadable;
    size_t place = place_of(unreadable, lane->waited_id);
    struct unreadable_row *row = place < unreadable->count ? &unreadable->rows[place] : NULL;
    lane->failures = failures;
    lane->delay_us = row ? TRY_US : 0;
    if (!row)
        return; /* by now it can be read */
    struct error *why = arena_alloc(lane->batch->arena, sizeof *why);
    error_set(why, ERROR_REFUSED, UNREADABLE_WHY " from %s: mend it, or what reads it, or delete it by hand: %.*s",
              config->table, (int)utf8_fit(span_of(row->cause.text), CAUSE_MAX), row->cause.text);
    lane->unreadable = why;
    if (row->tried_at + FRESH_US < sent_at) {
        row->due = true;
        return;
    }
    struct backoff backoff = {config->retry_base_us, config->retry_max_us};
    lane->failures = failures + 1;
    lane->counted = true;
    lane->delay_us =
        lane->failures >= config->retry_attempts ? -1 : backoff_delay_us(&backoff, lane->failures, &queue->rng);
}

/* ---- searching ---- */

static bool any_due(const struct unreadable *unreadable)
{
    for (size_t i = 0; i < unreadable->count; i++)
        if (unreadable->rows[i].due)
            return true;
    return false;
}

instant_us unreadable_due_at(const struct queue *queue)
{
    const struct unreadable *unreadable = &queue->unreadable;
    if (unreadable->search || any_due(unreadable))
        return 0;
    return unreadable->count > 0 ? unreadable->all_at : INSTANT_NEVER;
}

static struct unreadable_search *try_again(struct unreadable *unreadable, instant_us now)
{
    int64_t ids[ROWS_MAX];
    size_t n = 0;
    bool all = now >= unreadable->all_at;
    if (all)
        unreadable->all_at = now + ALL_US;
    for (size_t i = 0; i < unreadable->count; i++)
        if (all || unreadable->rows[i].due)
            ids[n++] = unreadable->ids[i];
    return unreadable_search_again(ids, n);
}

struct statement unreadable_begin(struct queue *queue, struct arena *arena, instant_us now)
{
    struct unreadable *unreadable = &queue->unreadable;
    if (!unreadable->search)
        unreadable->search = try_again(unreadable, now);
    return unreadable_search_statement(queue, unreadable->search, arena);
}

void unreadable_take(struct queue *queue, const PGresult *res)
{
    unreadable_search_take(queue, queue->unreadable.search, res);
}

static void add_row(struct unreadable *unreadable, const struct search_found *found, instant_us now)
{
    if (!unreadable->ids) {
        unreadable->ids = memory_array(ROWS_MAX, sizeof *unreadable->ids);
        unreadable->rows = memory_array(ROWS_MAX, sizeof *unreadable->rows);
    }
    if (unreadable->count == 0)
        unreadable->all_at = now + ALL_US;
    unreadable->ids[unreadable->count] = found->id;
    unreadable->rows[unreadable->count++] = (struct unreadable_row){.cause = found->cause, .tried_at = now};
}

static void remove_row(struct unreadable *unreadable, int64_t id)
{
    size_t place = place_of(unreadable, id);
    if (place >= unreadable->count)
        return;
    unreadable->count--;
    unreadable->ids[place] = unreadable->ids[unreadable->count];
    unreadable->rows[place] = unreadable->rows[unreadable->count];
}

static void claim_at_once(struct queue *queue, instant_us now)
{
    pace_poll_at(&queue->pace, now);
    queue->wakeups.failed_claims = true;
}

/* Of the rows that were tried again, those that were not found can be read, or are gone. */
static void take_again(struct queue *queue, const struct unreadable_search *search, instant_us now)
{
    struct unreadable *unreadable = &queue->unreadable;
    for (size_t i = 0; i < search->id_count; i++) {
        bool found = false;
        for (size_t f = 0; f < search->found_count && !found; f++)
            found = search->found[f].id == search->ids[i];
        size_t place = place_of(unreadable, search->ids[i]);
        if (!found) {
            remove_row(unreadable, search->ids[i]);
        } else if (place < unreadable->count) {
            unreadable->rows[place].tried_at = now;
            unreadable->rows[place].due = false;
        }
    }
}

static void take_found(struct queue *queue, const struct unreadable_search *search, instant_us now)
{
    struct unreadable *unreadable = &queue->unreadable;
    size_t before = unreadable->count;
    for (size_t i = 0; search->blames && i < search->found_count && unreadable->count < ROWS_MAX; i++)
        add_row(unreadable, &search->found[i], now);
    unreadable->eager = unreadable->count > before;
    unreadable->fruitless = unreadable->eager ? 0 : unreadable->fruitless + 1;
    if (unreadable->eager)
        claim_at_once(queue, now);
    else
        unreadable->search_at = now + backoff_delay_us(&search_backoff, unreadable->fruitless, &queue->rng);
}

void unreadable_end(struct queue *queue, const struct error *failure, instant_us now)
{
    struct unreadable *unreadable = &queue->unreadable;
    struct unreadable_search *search = unreadable->search;
    unreadable_search_ended(queue, search, failure);
    if (!search->over)
        return;
    if (search->again)
        take_again(queue, search, now);
    else
        take_found(queue, search, now);
    unreadable_abort(queue);
}

void unreadable_abort(struct queue *queue)
{
    unreadable_search_free(queue->unreadable.search);
    queue->unreadable.search = NULL;
}
