/* tests/unit/stage/per_key_stage.h -- the per_key strategy with results built in memory.
 *
 *   set_up -> claim -> take_seen, or answer(section, lock_row)* -> take_locks; take_row(event_row)* -> finish_claim ->
 * ...
 *          -> tear_down */
#ifndef TESTS_UNIT_PER_KEY_STAGE_H
#define TESTS_UNIT_PER_KEY_STAGE_H

#include "ordering/ordering.h"
#include "tests/unit/stage/hand_made.h"
#include "tests/unit/stage/result_stage.h"

#include <stdlib.h>

#define EPOCH_2000_S INT64_C(946684800)
#define EVENTS_MAX 8

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
    {"late", "is_late"},
    {"more", "has_more"},
    {"try_lock", "try(k)"},
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

/* Columns of lock_ids.sql, lock_named.sql and lock_due.sql. */
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
    CLAIM,
    KEYLESS,
    MISSED,
    LOW,
    WAITS,
    LOCK_ALL
};

/* Of a section that has seen nothing. */
static inline PGresult *lock_row(void)
{
    PGresult *res = result_of(LOCK_ALL);
    for (int column = 0; column < LOCK_ALL; column++)
        set_text(res, 0, column, NULL);
    set_bigint(res, 0, LOCKED, 0);
    set_bigint(res, 0, TRIED, 0);
    set_bigint(res, 0, FULL, 0);
    set_text(res, 0, CLAIM, "{}");
    set_text(res, 0, KEYLESS, "{}");
    return res;
}

/* Of one that has seen these ids, and locked a key. */
static inline PGresult *lock_row_of(int64_t low, int64_t high)
{
    PGresult *res = lock_row();
    set_bigint(res, 0, SEEN_MIN, low);
    set_bigint(res, 0, SEEN_MAX, high);
    set_bigint(res, 0, LOCKED, 1);
    set_bigint(res, 0, TRIED, 1);
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

static inline int64_t parameter(size_t statement, int number)
{
    return strtoll(statements[statement].values[number - 1], NULL, 10);
}

/* The statement that reads what the ones before it have locked. */
static inline size_t reading(void)
{
    return plan.guarded + (plan.fresh ? 1 : plan.section_count);
}

static inline int64_t read_parameter(int number)
{
    return parameter(reading(), number);
}

static inline bool has_section(enum claim_section_kind kind)
{
    for (size_t i = 0; i < plan.section_count; i++)
        if (plan.sections[i].kind == kind)
            return true;
    return false;
}

/* Its statement. */
static inline size_t section(enum claim_section_kind kind)
{
    size_t i = 0;
    while (i < plan.section_count && plan.sections[i].kind != kind)
        i++;
    ck_assert_msg(i < plan.section_count, "there is no section %d", (int)kind);
    return plan.guarded + i;
}

static inline int64_t section_parameter(enum claim_section_kind kind, int number)
{
    return parameter(section(kind), number);
}

/* The ids that a section looks at; none when there is no such section. */
static inline struct id_range ids_of(enum claim_section_kind kind)
{
    if (plan.fresh || !has_section(kind))
        return (struct id_range){1, 0};
    return (struct id_range){section_parameter(kind, 1), section_parameter(kind, 2)};
}

/* All greater ones are looked at as new. */
static inline int64_t fresh_above(void)
{
    return plan.fresh ? parameter(plan.guarded, 1) : ids_of(SECTION_FRESH).lo - 1;
}

static inline void claim_for(const struct claim_request *request)
{
    size_t count = ordering_per_key.claim(o, request, 0, arena, statements, &plan);
    ck_assert_uint_eq(count, reading() + 2);
    ck_assert_uint_le(count, ORDERING_STATEMENTS_MAX);
    for (size_t i = 0; i < count; i++)
        ck_assert(statements[i].by_row == (i == reading()));
}

static inline void claim(void)
{
    claim_for(&(struct claim_request){.max_keys = 10, .events_per_key = 4});
}

/* ---- what a claim is answered ---- */

static PGresult *answers[SECTION_KINDS];

/* This is what take_locks() will give to that section. */
static inline void answer(enum claim_section_kind kind, PGresult *res)
{
    section(kind);
    answers[kind] = res;
}

/* The results of all sections; those that have not been told an answer have seen nothing. */
static inline bool take_locks(void)
{
    bool ok = true;
    ck_assert(!plan.fresh);
    for (size_t i = 0; i < plan.section_count; i++) {
        PGresult **res = &answers[plan.sections[i].kind];
        ok = take_result(plan.guarded + i, *res ? *res : lock_row()) && ok;
        *res = NULL;
    }
    return ok;
}

/* Events with ids from `low` to `high` are there, in whichever section looks at them; none when that is empty. */
static inline void answer_seen(int64_t low, int64_t high)
{
    static const enum claim_section_kind of_ids[] = {SECTION_FRESH, SECTION_NEWEST, SECTION_OLDEST};
    for (size_t i = 0; i < sizeof of_ids / sizeof of_ids[0]; i++) {
        struct id_range seen = id_range_common(ids_of(of_ids[i]), (struct id_range){low, high});
        if (!id_range_is_empty(seen))
            answer(of_ids[i], lock_row_of(seen.lo, seen.hi));
    }
}

static inline void take_seen(int64_t low, int64_t high)
{
    answer_seen(low, high);
    ck_assert(take_locks());
}

static inline void take_nothing(void)
{
    ck_assert(take_locks());
}

static inline bool take_row(PGresult *res)
{
    return take_result(reading(), res);
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

/* Claims until nothing is left to look at; each of them sees all ids from the first one to `seen_max`. */
static inline void look_at_all(int64_t seen_max)
{
    do {
        claim();
        take_seen(1, seen_max);
        finish_claim();
    } while (ordering_per_key.pending(o, 0));
}

#endif
