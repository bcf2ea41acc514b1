#include "ordering/settler.h"

#include "ordering/result.h"
#include "sql_text.h"

#include <stdlib.h>

enum settle_kind { SETTLE_DONE, SETTLE_BURY, SETTLE_KEPT, SETTLE_PARK, SETTLE_UNPARK };

bool settler_init(struct settler *settler, const struct ordering_options *options, struct error *err)
{
    const struct sql_variable *v = options->variables;
    *settler = (struct settler){.queue = options->queue, .archive = options->archive};
    const char *done = options->archive ? sql_settle_archive : sql_settle_delete;
    if (options->hand_on)
        done = options->archive ? sql_settle_next_archive : sql_settle_next;
    return (settler->done_sql = sql_render(done, v, err)) &&
           (settler->bury_sql = sql_render(sql_settle_bury, v, err)) &&
           (settler->kept_sql = sql_render(sql_settle_kept, v, err)) &&
           (settler->park_sql = sql_render(sql_settle_park, v, err)) &&
           (settler->unpark_sql = sql_render(sql_settle_unpark, v, err));
}

void settler_done(struct settler *settler)
{
    char *texts[] = {settler->done_sql, settler->bury_sql, settler->kept_sql, settler->park_sql, settler->unpark_sql};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
}

/* The statements of a settlement, in the order they run. */
static size_t settle_kinds(const struct settlement *s, bool kept, enum settle_kind *ret)
{
    size_t n = 0;
    if (s->done_count)
        ret[n++] = SETTLE_DONE;
    if (s->buried_count)
        ret[n++] = SETTLE_BURY;
    if (kept && s->done_count + s->buried_count)
        ret[n++] = SETTLE_KEPT;
    if (s->parked_count)
        ret[n++] = SETTLE_PARK;
    if (s->resumed_key_count || s->resumed_solo_count)
        ret[n++] = SETTLE_UNPARK;
    return n;
}

static void add_failures(struct statement *st, struct arena *arena, const struct settle_failure *failures, size_t count,
                         bool parking)
{
    int64_t *ids = arena_array(arena, count, sizeof *ids), *attempts = arena_array(arena, count, sizeof *attempts),
            *delays = arena_array(arena, count, sizeof *delays);
    struct span *keys = arena_array(arena, count, sizeof *keys), *whys = arena_array(arena, count, sizeof *whys);
    for (size_t i = 0; i < count; i++) {
        ids[i] = failures[i].id;
        keys[i] = failures[i].key;
        attempts[i] = failures[i].attempts;
        delays[i] = failures[i].delay_us;
        whys[i] = failures[i].why;
    }
    statement_add_ids(st, arena, ids, count);
    if (parking)
        statement_add_texts(st, arena, keys, count);
    statement_add_ids(st, arena, attempts, count);
    if (parking)
        statement_add_ids(st, arena, delays, count);
    statement_add_texts(st, arena, whys, count);
}

static struct statement settle_statement(const struct settler *settler, const struct settlement *s, struct arena *arena,
                                         enum settle_kind kind)
{
    const char *const texts[] = {settler->done_sql, settler->bury_sql, settler->kept_sql, settler->park_sql,
                                 settler->unpark_sql};
    struct statement st = statement_of(texts[kind]);
    switch (kind) {
    case SETTLE_DONE:
        statement_add_ids(&st, arena, s->done, s->done_count);
        if (settler->archive)
            statement_add_text(&st, settler->queue);
        break;
    case SETTLE_BURY:
        statement_add_text(&st, settler->queue);
        add_failures(&st, arena, s->buried, s->buried_count, false);
        break;
    case SETTLE_KEPT:
        statement_add_ids(&st, arena, s->done, s->done_count + s->buried_count);
        break;
    case SETTLE_PARK:
        statement_add_text(&st, settler->queue);
        add_failures(&st, arena, s->parked, s->parked_count, true);
        break;
    case SETTLE_UNPARK:
        statement_add_text(&st, settler->queue);
        statement_add_texts(&st, arena, s->resumed_keys, s->resumed_key_count);
        statement_add_ids(&st, arena, s->resumed_solos, s->resumed_solo_count);
        break;
    }
    return st;
}

size_t settler_settle(const struct settler *settler, const struct settlement *s, struct arena *arena,
                      struct statement *ret)
{
    enum settle_kind kinds[ORDERING_STATEMENTS_MAX];
    size_t n = settle_kinds(s, settler->missed, kinds);
    for (size_t i = 0; i < n; i++)
        ret[i] = settle_statement(settler, s, arena, kinds[i]);
    return n;
}

void settler_settled(struct settler *settler, const struct settlement *s, size_t index, const PGresult *res,
                     size_t *ret_missing)
{
    enum settle_kind kinds[ORDERING_STATEMENTS_MAX];
    if (index >= settle_kinds(s, false, kinds) || kinds[index] > SETTLE_BURY)
        return;
    size_t due = kinds[index] == SETTLE_DONE ? s->done_count : s->buried_count;
    int64_t counted;
    size_t gone = PQntuples(res) == 1 && result_bigint(res, 0, 0, &counted)
                      ? (size_t)counted
                      : strtoul(PQcmdTuples((PGresult *)res), NULL, 10);
    *ret_missing += due > gone ? due - gone : 0;
    if (gone < due)
        settler->missed = true;
}
