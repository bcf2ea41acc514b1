/* tests/unit/stage/per_key_stage.h -- the per_key strategy with results built in memory.
 *
 *   set_up -> claim -> take_result(event_row | lock_row) -> finish_claim -> ... -> tear_down */
#ifndef TESTS_UNIT_PER_KEY_STAGE_H
#define TESTS_UNIT_PER_KEY_STAGE_H

#include "ordering/ordering.h"
#include "tests/unit/stage/hand_made.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>

#define EPOCH_2000_S INT64_C(946684800)
#define EVENTS_MAX 8
#define ALL_COLUMNS_MAX 24

static const struct sql_variable variables[] = {
    {"table", "t"},
    {"table_name", "'t'"},
    {"table_class", "'t'::regclass"},
    {"where", "true"},
    {"id", "e.id"},
    {"key", "e.k"},
    {"type", "e.t"},
    {"created_at", "e.at"},
    {"key_type", "bigint"},
    {"lock_hash", "h"},
    {"columns", "e.id"},
    {"text_once", ""},
    {"key_range", "true"},
    {"key_order", "e.id"},
    {"key_all", "true"},
    {"key_all_order", "e.id"},
    {"sequence", "s"},
    {"sequence_class", "'s'::regclass"},
    {"holders_of", "'s'::regclass"},
    {"drawn_further", "true"},
    {"parked_key", "p.key"},
    {"state", "outbox"},
    {"parked_class", "'outbox.parked'::regclass"},
    {"deleted", "with deleted as (delete from t e returning e.id as id)"},
    {"placed", "with deleted as (delete from only t e returning e.id as id)"},
    {"behind_entry", "true"},
    {"lock_class", "7"},
    {NULL, NULL},
};

static struct ordering *o;
static struct arena *arena;
static struct statement statements[ORDERING_STATEMENTS_MAX];
static struct claim_plan plan;
static struct claim_intake intake;
static struct error err;

/* What came in. */
static struct event events[EVENTS_MAX];
static bool waited[EVENTS_MAX];
static size_t event_count;
static struct span gone_key;
static int64_t waited_id, delayed_id, delayed_us, after;
static bool refuse, paused;

static inline bool take_event(void *to, const struct event *event, bool has_waited, struct error *error)
{
    (void)to;
    if (refuse)
        return error_set(error, ERROR_INTERNAL, "out of order");
    events[event_count] = *event;
    events[event_count].columns = arena_array(arena, 2, sizeof(struct span));
    memcpy(events[event_count].columns, event->columns, 2 * sizeof(struct span));
    waited[event_count++] = has_waited;
    return true;
}

static inline void take_ended_wait(void *to, struct span key, int64_t id)
{
    (void)to;
    gone_key = arena_copy(arena, key);
    waited_id = id;
}

static inline void take_delayed(void *to, struct span key, int64_t id, int64_t delay_us, int64_t after_id)
{
    after = after_id;
    (void)to;
    gone_key = arena_copy(arena, key);
    delayed_id = id;
    delayed_us = delay_us;
}

static inline void take_paused(void *to)
{
    (void)to;
    paused = true;
}

static inline struct ordering_options options_with(bool sequence, bool archive)
{
    return (struct ordering_options){.queue = "orders",
                                     .variables = variables,
                                     .lock_class = 7,
                                     .payload_kind = PAYLOAD_TEXT,
                                     .extra_columns = 2,
                                     .keys_per_claim = 16,
                                     .oldest_share = 20,
                                     .archive = archive,
                                     .delays = archive,
                                     .after = archive,
                                     .sequence = sequence,
                                     .key_index = true};
}

static inline void open_with(bool sequence, bool archive)
{
    struct ordering_options options = options_with(sequence, archive);
    o = ordering_per_key.open(&options, &err);
    ck_assert_msg(o != NULL, "%s", err.text);
}

static inline void set_up(void)
{
    arena = arena_new();
    intake = (struct claim_intake){.arena = arena,
                                   .event = take_event,
                                   .ended_wait = take_ended_wait,
                                   .delayed = take_delayed,
                                   .paused = take_paused};
    event_count = 0;
    refuse = paused = false;
    waited_id = delayed_id = delayed_us = after = 0;
    open_with(true, false);
}

static inline void tear_down(void)
{
    ordering_per_key.close(o);
    arena_free(arena);
}

/* ---- results ---- */

static inline PGresult *result_of(int columns)
{
    static PGresAttDesc attributes[ALL_COLUMNS_MAX];
    static char name[] = "c";
    for (int i = 0; i < columns; i++)
        attributes[i] = (PGresAttDesc){.name = name, .format = 1};
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert_int_eq(PQsetResultAttrs(res, columns, attributes), 1);
    return res;
}

static inline void set_text(PGresult *res, int row, int column, const char *text)
{
    char copy[64];
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    ck_assert_int_eq(PQsetvalue(res, row, column, copy, text ? (int)strlen(text) : -1), 1);
}

static inline void set_bigint(PGresult *res, int row, int column, int64_t value)
{
    uint64_t big = htobe64((uint64_t)value);
    ck_assert_int_eq(PQsetvalue(res, row, column, (char *)&big, sizeof big), 1);
}

static inline void set_int(PGresult *res, int row, int column, int32_t value)
{
    uint32_t big = htobe32((uint32_t)value);
    ck_assert_int_eq(PQsetvalue(res, row, column, (char *)&big, sizeof big), 1);
}

static inline bool take_result(size_t index, PGresult *res)
{
    bool ok = ordering_per_key.claimed(o, &plan, index, res, &intake, &err);
    PQclear(res);
    return ok;
}

/* Columns of per_key_read.sql. */
enum {
    ATTEMPTS,
    HEAD,
    GONE,
    ID,
    CREATED,
    OVERSIZE,
    KEY,
    TYPE,
    PAYLOAD,
    HEADERS,
    EVENT_ID,
    TRACE,
    TID,
    EXTRA_0,
    EXTRA_1,
    DELAY, /* where there are delays, */
    AFTER, /* and where events come after others */
    ALL
};

static inline PGresult *event_row(int64_t id, const char *key)
{
    PGresult *res = result_of(ALL);
    for (int column = 0; column < ALL; column++)
        set_text(res, 0, column, NULL);
    if (id)
        set_bigint(res, 0, ID, id);
    set_text(res, 0, KEY, key);
    return res;
}

enum {
    NEWEST_LEFT,
    OLDEST_LEFT,
    SEEN_MAX,
    MISSED_MIN,
    MISSED_MAX,
    LOCKED,
    CLAIM,
    KEYLESS,
    MISSED_KEY,
    SEEN_MIN,
    THIN,
    MISSED_LOW,
    MISSED_HIGH,
    BARE_MIN,
    LOCK_ALL
};

static inline PGresult *lock_row(int64_t seen_max)
{
    PGresult *res = result_of(LOCK_ALL);
    for (int column = 0; column < LOCK_ALL; column++)
        set_text(res, 0, column, NULL);
    set_bigint(res, 0, SEEN_MAX, seen_max);
    set_bigint(res, 0, LOCKED, 1);
    return res;
}

/* ---- what is known ---- */

/* Where the ids begin that may have events. */
static inline int64_t least(void)
{
    struct id_ranges ids;
    ordering_per_key.inhabited(o, &ids);
    return ids.at[0].lo;
}

/* ---- what a claim asks ---- */

static inline void claim(void)
{
    struct claim_request request = {.max_keys = 10, .events_per_key = 4};
    ck_assert_uint_eq(ordering_per_key.claim(o, &request, 0, arena, statements, &plan), 3);
}

static inline int64_t parameter(size_t statement, int number)
{
    return strtoll(statements[statement].values[number - 1], NULL, 10);
}

/* Rows to look at in oldest, by either statement. */
static inline int64_t oldest_rows(void)
{
    return parameter(0, plan.all ? 8 : 15);
}

/* Columns of horizon_floor.sql. */
enum { FLOOR, COVERED, PASSED, FLOOR_KEY, PLACE, LEAST, FLOOR_ALL };

/* A row of it; 0: null. */
static inline PGresult *floor_row(int64_t floor, bool covered, int64_t passed)
{
    PGresult *res = result_of(FLOOR_ALL);
    for (int column = 0; column < FLOOR_ALL; column++)
        set_text(res, 0, column, NULL);
    if (floor) {
        set_bigint(res, 0, FLOOR, floor);
        set_bigint(res, 0, COVERED, covered);
    }
    if (passed)
        set_bigint(res, 0, PASSED, passed);
    return res;
}

/* The last statement of a probe. */
static inline void floor_probed(size_t index, int64_t floor, bool covered, int64_t passed)
{
    PGresult *res = floor_row(floor, covered, passed);
    ordering_per_key.probed(o, index, res);
    PQclear(res);
}

/* What is drawn settles, and no floor is answered. */
static inline void settle_ids(int64_t drawn)
{
    ordering_per_key.probe(o, 0, arena, statements);
    PGresult *res = result_of(2);
    set_bigint(res, 0, 0, 1);
    set_bigint(res, 0, 1, drawn);
    ordering_per_key.probed(o, 0, res);
    PQclear(res);
    res = result_of(1);
    ordering_per_key.probed(o, 1, res);
    PQclear(res);
}

static inline void probe(int64_t drawn, size_t holder_count, bool with_floor, int64_t floor)
{
    size_t n = ordering_per_key.probe(o, 0, arena, statements);
    ck_assert_uint_eq(n, with_floor ? 3 : 2);
    PGresult *res = result_of(2);
    set_bigint(res, 0, 0, 1);
    set_bigint(res, 0, 1, drawn);
    ordering_per_key.probed(o, 0, res);
    PQclear(res);
    res = result_of(1);
    for (size_t i = 0; i < holder_count; i++)
        set_text(res, (int)i, 0, (char[]){'3', '/', (char)('1' + i), 0});
    ordering_per_key.probed(o, 1, res);
    PQclear(res);
    if (with_floor)
        floor_probed(2, floor, false, 0);
}

static inline void finish_claim(void)
{
    plan.events = event_count;
    ordering_per_key.claim_done(o, &plan, MS_US, 0);
}

/* Claims until nothing is left to look at; `seen_max` is the greatest id that each of them sees. */
static inline void look_at_all(int64_t seen_max)
{
    do {
        claim();
        ck_assert(take_result(0, lock_row(seen_max)));
        finish_claim();
    } while (ordering_per_key.pending(o, 0));
}

#endif
