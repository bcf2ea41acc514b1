/* tests/unit/stage/unordered_stage.h -- the unordered strategy with results built in memory.
 *
 *   set_up -> claim_at -> take_result(lock_row) -> take_read -> finish -> ... -> tear_down */
#ifndef TESTS_UNIT_UNORDERED_STAGE_H
#define TESTS_UNIT_UNORDERED_STAGE_H

#include "ordering/ordering.h"
#include "tests/unit/stage/hand_made.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>

static const struct sql_variable variables[] = {
    {"table", "t"},
    {"table_name", "'t'"},
    {"table_class", "'t'::regclass"},
    {"where", "true"},
    {"id", "e.id"},
    {"key_all", "true"},
    {"key_all_order", "e.id"},
    {"key", "null"},
    {"type", "e.t"},
    {"created_at", "null"},
    {"key_type", "text"},
    {"lock_hash", "h"},
    {"columns", "e.id"},
    {"text_once", ""},
    {"sequence", "s"},
    {"sequence_class", "'s'::regclass"},
    {"holders_of", "'s'::regclass"},
    {"drawn_further", "true"},
    {"state", "outbox"},
    {"parked_class", "'outbox.parked'::regclass"},
    {"deleted", "with deleted as (delete from t e returning e.id as id)"},
    {"placed", "with deleted as (delete from only t e returning e.id as id)"},
    {"behind_entry", "true"},
    {"parked_key", "p.key"},
    {"priority", "e.p"},
    {"try_lock", "l"},
    {"lock_class", "7"},
    {NULL, NULL},
};

enum { FROM = 1, TO, ROWS, SECTION_PLACES, PLACES, QUEUE, BUSY, BEHIND, FLOOR, LEAST };
enum {
    SEEN_MIN,
    SEEN_MAX,
    MISSED_MIN,
    MISSED_MAX,
    LOCKED,
    TRIED,
    CUT_MIN,
    CUT_MAX,
    FULL,
    LOW = 12,
    WAITS,
    LOCK_COLUMNS
};
enum { READ_ID = 3, READ_COLUMNS = 12 };

static struct ordering *o;
static struct arena *arena;
static struct statement statements[ORDERING_STATEMENTS_MAX];
static struct claim_plan plan;
static struct claim_intake intake;
static struct error err;
static bool paused;
static int64_t taken[8];
static size_t taken_count;

static inline bool take_event(void *to, const struct event *event, bool waited, struct error *error)
{
    (void)to;
    if (event->id == 13)
        return error_set(error, ERROR_INTERNAL, "refused");
    ck_assert(!waited);
    taken[taken_count++] = event->id;
    return true;
}

static inline void take_ended_wait(void *to, struct span key, int64_t id)
{
    (void)to;
    ck_assert_ptr_null(key.data);
    taken[taken_count++] = -id;
}

static inline void take_paused(void *to)
{
    (void)to;
    paused = true;
}

static inline void open_with(bool priority, bool lock_rows)
{
    struct ordering_options options = {.queue = "tasks",
                                       .variables = variables,
                                       .lock_class = 7,
                                       .oldest_share = 10,
                                       .sequence = true,
                                       .priority = priority,
                                       .lock_rows = lock_rows};
    if (o)
        ordering_unordered.close(o);
    o = ordering_unordered.open(&options, &err);
    ck_assert_msg(o != NULL, "%s", err.text);
}

static inline void set_up(void)
{
    arena = arena_new();
    intake = (struct claim_intake){
        .arena = arena, .event = take_event, .ended_wait = take_ended_wait, .paused = take_paused};
    taken_count = 0;
    paused = false;
    o = NULL;
    open_with(true, false);
}

static inline void tear_down(void)
{
    ordering_unordered.close(o);
    arena_free(arena);
}

static inline PGresult *row_of(int columns)
{
    static PGresAttDesc attributes[LOCK_COLUMNS];
    static char name[] = "c";
    for (int i = 0; i < columns; i++)
        attributes[i] = (PGresAttDesc){.name = name, .format = 1};
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert_int_eq(PQsetResultAttrs(res, columns, attributes), 1);
    for (int i = 0; i < columns; i++)
        ck_assert_int_eq(PQsetvalue(res, 0, i, NULL, -1), 1);
    return res;
}

static inline void set_bigint(PGresult *res, int column, int64_t value)
{
    uint64_t big = htobe64((uint64_t)value);
    ck_assert_int_eq(PQsetvalue(res, 0, column, (char *)&big, sizeof big), 1);
}

static inline void set_int(PGresult *res, int column, int32_t value)
{
    uint32_t big = htobe32((uint32_t)value);
    ck_assert_int_eq(PQsetvalue(res, 0, column, (char *)&big, sizeof big), 1);
}

static inline PGresult *lock_row(int64_t seen_max)
{
    PGresult *res = row_of(LOCK_COLUMNS);
    set_bigint(res, SEEN_MAX, seen_max);
    set_bigint(res, SEEN_MIN, seen_max);
    set_bigint(res, LOCKED, 1);
    set_bigint(res, WAITS, 1);
    return res;
}

static inline bool has(enum claim_section_kind kind)
{
    for (size_t i = 0; i < plan.section_count; i++)
        if (plan.sections[i].kind == kind)
            return true;
    return false;
}

static inline size_t section(enum claim_section_kind kind)
{
    for (size_t i = 0; i < plan.section_count; i++)
        if (plan.sections[i].kind == kind)
            return i;
    ck_abort_msg("there is no section %d", (int)kind);
}

static inline bool take_result(size_t index, PGresult *res)
{
    bool ok = ordering_unordered.claimed(o, &plan, index, res, &intake, &err);
    PQclear(res);
    return ok;
}

/* Of one section; nothing is said of the others. */
static inline bool take_section(enum claim_section_kind kind, PGresult *res)
{
    return take_result(section(kind), res);
}

static inline bool take_read(int64_t id)
{
    PGresult *res = row_of(READ_COLUMNS);
    set_bigint(res, READ_ID, id);
    return take_result(plan.section_count, res);
}

static inline void claim_at(instant_us now)
{
    struct claim_request request = {.max_keys = 10, .draw = 1};
    size_t count = ordering_unordered.claim(o, &request, now, arena, statements, &plan);
    ck_assert_uint_eq(count, plan.section_count + 2);
}

static inline const struct statement *asked(enum claim_section_kind kind)
{
    return &statements[section(kind)];
}

static inline int64_t parameter(enum claim_section_kind kind, int number)
{
    return strtoll(asked(kind)->values[number - 1], NULL, 10);
}

static inline void settle_ids(int64_t drawn)
{
    ck_assert_uint_ge(ordering_unordered.probe(o, 0, arena, statements), 2);
    PGresult *res = row_of(2);
    set_bigint(res, 0, 1);
    set_bigint(res, 1, drawn);
    ordering_unordered.probed(o, 0, res);
    PQclear(res);
    res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ordering_unordered.probed(o, 1, res);
    PQclear(res);
}

static inline void finish(instant_us now)
{
    plan.events = taken_count;
    ordering_unordered.claim_done(o, &plan, MS_US, now);
}

/* Of the oldest stretch, ids from `id` on have had no place. */
static inline bool leave_oldest(int64_t id)
{
    PGresult *res = lock_row(1000);
    set_bigint(res, CUT_MIN, id);
    set_bigint(res, CUT_MAX, 1000);
    return take_section(SECTION_OLDEST, res);
}

/* There are more ids up to 1000 than the claim has looked at. */
static inline void leave_a_backlog(instant_us now)
{
    ck_assert(leave_oldest(100));
    finish(now);
}

#endif
