/* DESIGN. Events that wait for nobody: each is locked by itself, as a row (FOR UPDATE SKIP LOCKED) or by an advisory
 * lock on its id. As in per_key.c one statement locks, and the next, whose snapshot is younger than the locks, reads:
 * what an earlier holder has made to wait is not taken for new.
 *
 * Without a priority events are taken oldest first, by the ids that scan.c says to look at. With one, the oldest get a
 * share of each claim, so that none starves, and what scan.c knows stays complete. The other places go to the most
 * urgent of what is seen: the oldest, the new and, when there is more than that, the top of the index on (priority,
 * id). There a claim goes on where the one before has stopped, because at the very top lie the dead entries of what was
 * most urgent, and what is delayed. From time to time, at a bounded part of all time, one looks from the very top:
 * whose priority was raised is found then. All this is only about who comes first: an event that `top` passes over is
 * found by its id. */
#include "ordering/event_row.h"
#include "ordering/result.h"
#include "ordering/strategy.h"
#include "sql_text.h"

#include <stdlib.h>

#define TOP_MIN_US (50 * MS_US)
#define TOP_PRICE 10 /* looks from the very top have one part in so many of the time */
#define TOP_FIRST INT64_MAX
#define TOP_LAST INT64_MIN /* nothing is less urgent */

enum claim_statement { CLAIM_LOCK, CLAIM_READ, CLAIM_REST, CLAIM_STATEMENTS };

/* Those of sql/claim/unordered_lock.sql. */
enum lock_column {
    LOCK_OLDEST_LEFT,
    LOCK_SEEN_MAX,
    LOCK_BARE_MIN,
    LOCK_MISSED_MIN,
    LOCK_MISSED_MAX,
    LOCK_LOCKED,
    LOCK_THIN,
    LOCK_TOP_PRIORITY,
    LOCK_TOP_ID,
    LOCK_KEYLESS,
    LOCK_SIGN,
    LOCK_COLUMNS
};

struct unordered {
    struct strategy base;
    struct guarded_text lock, read;
    int64_t top_priority, top_id; /* where the next claim goes on, */
    instant_us top_at;            /* until one looks from the very top */
    bool backlog;                 /* the last claim has not come to the end of what there is */
};

static void unordered_close(struct ordering *o)
{
    struct unordered *un = (struct unordered *)o;
    guarded_text_done(&un->lock);
    guarded_text_done(&un->read);
    strategy_done(&un->base);
    free(un);
}

static struct ordering *unordered_open(const struct ordering_options *options, struct error *err)
{
    struct unordered *un = memory_new(sizeof *un);
    const struct sql_variable *v = options->variables, *guarded = options->guarded;
    enum horizon_floor floor = options->priority ? FLOOR_EVENTS : FLOOR_NONE;
    if (strategy_init(&un->base, &ordering_unordered, options, floor, err) &&
        guarded_text_init(&un->lock, sql_unordered_lock, v, guarded, err) &&
        guarded_text_init(&un->read, sql_unordered_read, v, guarded, err))
        return &un->base.ordering;
    unordered_close(&un->base.ordering);
    return NULL;
}

/* The oldest come first: where the two stretches are one it is looked at as such, and else the newer one stays. */
static void look_at_the_oldest(struct scan_plan *scan, struct scan_report *report)
{
    if (id_range_is_empty(scan->newest))
        return;
    if (!scan->sweeping && scan->newest.lo - 1 == scan->oldest.hi)
        scan->oldest.hi = scan->newest.hi;
    else
        report->newest_left = scan->newest;
    scan->newest = (struct id_range){1, 0};
}

/* Without a backlog everything is among the fresh and the oldest. */
static void add_top(const struct unordered *un, struct claim_plan *plan, instant_us now, struct arena *arena,
                    struct statement *lock)
{
    bool backlog =
        un->base.options.priority && un->backlog && !id_range_is_empty(plan->scan.oldest) && !plan->scan.sweeping;
    plan->from_top = backlog && now >= un->top_at;
    plan->top_priority = plan->from_top ? TOP_FIRST : backlog ? un->top_priority : TOP_LAST;
    plan->top_id = plan->from_top ? SCAN_ID_MIN : backlog ? un->top_id : SCAN_ID_MAX;
    statement_add_int(lock, arena, plan->top_priority);
    statement_add_int(lock, arena, plan->top_id);
    statement_add_int(lock, arena, un->base.horizon.floor);
}

static size_t unordered_claim(struct ordering *o, const struct claim_request *request, instant_us now,
                              struct arena *arena, struct statement *ret, struct claim_plan *ret_plan)
{
    struct unordered *un = (struct unordered *)o;
    bool guarded = request->unreadable_count > 0;
    *ret_plan = (struct claim_plan){.rows_limit = un->base.rows.limit, .key_limit = 1, .guarded = guarded};
    ret_plan->report = scan_saw_nothing;
    struct scan_plan *scan = &ret_plan->scan;
    scan_next(&un->base.scan, now, scan);
    look_at_the_oldest(scan, &ret_plan->report);

    if (guarded)
        *ret++ = ordering_guard(request->unreadable, request->unreadable_count, arena);
    struct statement *lock = &ret[CLAIM_LOCK];
    *lock = statement_of(guarded_text_of(&un->lock, guarded));
    statement_add_int(lock, arena, scan->fresh_above);
    statement_add_int(lock, arena, scan->oldest.lo);
    statement_add_int(lock, arena, scan->oldest.hi);
    statement_add_int(lock, arena, claim_rows_look(&un->base.rows, request->max_keys, false));
    statement_add_int(lock, arena, request->max_keys);
    statement_add_int(lock, arena,
                      claim_rows_share(request, un->base.options.priority ? un->base.options.oldest_share : 100));
    statement_add_ids(lock, arena, request->busy_keyless_ids, request->busy_keyless_count);
    statement_add_text(lock, un->base.options.queue);
    statement_add_int(lock, arena, claim_rows_waits_last(request));
    add_top(un, ret_plan, now, arena, lock);

    struct statement *read = &ret[CLAIM_READ];
    *read = statement_of(guarded_text_of(&un->read, guarded));
    read->by_row = true;
    statement_add_text(read, un->base.options.queue);
    statement_add_int(read, arena, ret_plan->rows_limit);
    ret[CLAIM_REST] = statement_of(sql_claim_rest);
    return CLAIM_STATEMENTS + guarded;
}

static bool read_locks(struct unordered *un, struct claim_plan *plan, const PGresult *res, struct arena *arena,
                       struct error *err)
{
    if (PQnfields(res) != LOCK_COLUMNS || PQntuples(res) != 1)
        return error_set(err, ERROR_INTERNAL, "the locking half of a claim returned %d rows of %d columns",
                         PQntuples(res), PQnfields(res));
    struct scan_report *report = &plan->report;
    int64_t id;
    if (result_bigint(res, 0, LOCK_OLDEST_LEFT, &id))
        report->oldest_left = (struct id_range){id, plan->scan.oldest.hi};
    if (result_bigint(res, 0, LOCK_SEEN_MAX, &id))
        report->seen_max = id;
    if (result_bigint(res, 0, LOCK_BARE_MIN, &id) && id < un->base.horizon.floor)
        horizon_lower(&un->base.horizon, id); /* somebody inserted an id that was long settled */
    if (result_bigint(res, 0, LOCK_MISSED_MIN, &id) && result_bigint(res, 0, LOCK_MISSED_MAX, &report->missed.hi))
        report->missed.lo = id;
    result_bigint(res, 0, LOCK_LOCKED, &plan->locked);
    plan->locked_keyless_ids = arena_copy(arena, result_span(res, 0, LOCK_KEYLESS));
    plan->thin = result_bigint(res, 0, LOCK_THIN, &id) && id;
    if (!result_bigint(res, 0, LOCK_TOP_PRIORITY, &plan->top_priority) ||
        !result_bigint(res, 0, LOCK_TOP_ID, &plan->top_id)) {
        plan->top_priority = TOP_LAST;
        plan->top_id = SCAN_ID_MAX;
    }
    return true;
}

static bool unordered_claimed(struct ordering *o, struct claim_plan *plan, size_t index, const PGresult *res,
                              const struct claim_intake *intake, struct error *err)
{
    struct unordered *un = (struct unordered *)o;
    if (index < plan->guarded)
        return true;
    if (index == CLAIM_LOCK + (size_t)plan->guarded)
        return read_locks(un, plan, res, intake->arena, err);
    for (int row = 0; row < PQntuples(res); row++) {
        plan->rows++;
        if (!event_row_read(&un->base.options, res, row, intake, err))
            return false;
    }
    return true;
}

static void go_on_from_the_top(struct unordered *un, const struct claim_plan *plan, int64_t took_us, instant_us now)
{
    un->top_priority = plan->top_priority;
    un->top_id = plan->top_id;
    if (plan->from_top)
        un->top_at = now + (took_us * TOP_PRICE > TOP_MIN_US ? took_us * TOP_PRICE : TOP_MIN_US);
    if (plan->truncated)
        un->top_at = now;
}

static void unordered_claim_done(struct ordering *o, struct claim_plan *plan, int64_t took_us, instant_us now)
{
    struct unordered *un = (struct unordered *)o;
    struct scan_report report = plan->report;
    report.found = plan->events > 0;
    scan_seen(&un->base.scan, &plan->scan, &report, took_us, now);
    bool full = plan->rows >= plan->rows_limit;
    plan->truncated = full || plan->spilled;
    if (plan->truncated)
        scan_truncated(&un->base.scan, &plan->scan, &report, now);
    bool left = !id_range_is_empty(report.oldest_left) || !id_range_is_empty(report.newest_left);
    un->backlog = plan->truncated || (left && !plan->scan.sweeping);
    go_on_from_the_top(un, plan, took_us, now);
    claim_rows_done(&un->base.rows, plan);
}

static void unordered_claim_failed(struct ordering *o, const struct claim_plan *plan)
{
    struct unordered *un = (struct unordered *)o;
    struct scan_plan all = plan->scan;
    all.newest = plan->report.newest_left;
    scan_failed(&un->base.scan, &all);
    claim_rows_failed(&un->base.rows, plan);
    un->top_at = 0;
}

static void unordered_released(struct ordering *o, int64_t lo, int64_t hi, instant_us at)
{
    struct unordered *un = (struct unordered *)o;
    strategy_released(o, lo, hi, at);
    un->top_at = instant_min(un->top_at, at);
}

const struct ordering_type ordering_unordered = {
    .keyless = true,
    .open = unordered_open,
    .close = unordered_close,
    .claim = unordered_claim,
    .claimed = unordered_claimed,
    .claim_done = unordered_claim_done,
    .claim_failed = unordered_claim_failed,
    .hold = strategy_hold,
    .settle = strategy_settle,
    .settled = strategy_settled,
    .released = unordered_released,
    .probe = strategy_probe,
    .probed = strategy_probed,
    .wants_probe = strategy_wants_probe,
    .forget = strategy_forget,
    .peek = strategy_peek,
    .inhabited = strategy_inhabited,
    .pending = strategy_pending,
    .pending_at = strategy_pending_at,
    .sweep_due = strategy_sweep_due,
};
