/* What the sections of a claim do, lock_ids.sql, lock_named.sql and lock_due.sql: choose keys and lock them. And
 * fresh_lock.sql, which locks whatever is found. */
#include "tests/simulation/judge.h"
#include "tests/simulation/result.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CANDIDATES_MAX (ROWS_MAX + 64)
#define KEYLESS_LOCKS (INT64_C(1) << 32)
#define SECTION_COLUMNS 14
#define WAITS_TOLD 65

/* A key that was found, or an event without one. */
struct candidate {
    int64_t key, keyless; /* one of them QUERY_NO_ID */
    int64_t low, high;
    bool busy, needs_none, late, cut;
    bool tried, locked;
};

/* The section under way; candidates in the order in which they were found. */
struct section {
    struct backend *backend;
    const struct call *call;
    int64_t room, rows, rows_max; /* keys that may be locked; rows seen, and that may be looked at */
    struct candidate found[CANDIDATES_MAX];
    size_t found_count;
};

static struct section section;

int64_t query_lock_name(int key, int64_t id)
{
    int64_t name = key == KEY_NONE_SIM ? id : key;
    if (sim.plan.lock_names > 0)
        return name % sim.plan.lock_names;
    return key == KEY_NONE_SIM ? KEYLESS_LOCKS + id : name;
}

static bool has(const struct list *list, int64_t value)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->values[i] == value)
            return true;
    return false;
}

/* ---- what was found ---- */

static struct candidate *add_candidate(int64_t key, int64_t keyless, int64_t id)
{
    struct candidate *c = &section.found[section.found_count++];
    *c = (struct candidate){.key = key, .keyless = keyless, .low = id, .high = id};
    return c;
}

static void note_row(const struct row *row)
{
    int64_t key = row->key == KEY_NONE_SIM ? QUERY_NO_ID : row->key,
            keyless = row->key == KEY_NONE_SIM ? row->id : QUERY_NO_ID;
    struct candidate *c = NULL;
    for (size_t i = 0; i < section.found_count && !c; i++)
        if (section.found[i].key == key && section.found[i].keyless == keyless)
            c = &section.found[i];
    c = c ? c : add_candidate(key, keyless, row->id);
    c->low = row->id < c->low ? row->id : c->low;
    c->high = row->id > c->high ? row->id : c->high;
    section.rows++;
}

static void look_at(int64_t lo, int64_t hi, bool oldest)
{
    const struct store *store = &sim.store;
    for (size_t n = 0; n < store->row_count && section.rows < section.rows_max; n++) {
        const struct row *row = &store->rows[oldest ? n : store->row_count - 1 - n];
        if (row->id >= lo && row->id <= hi && query_sees_row(section.backend, row))
            note_row(row);
    }
}

/* ---- locks ---- */

/* With room for all that may be locked. */
static struct list grown(const struct list *list)
{
    struct list ret = {.values = arena_array(sim.arena, list->count + section.found_count, sizeof(int64_t)),
                       .count = list->count};
    if (list->count > 0)
        memcpy(ret.values, list->values, list->count * sizeof(int64_t));
    return ret;
}

static void begin_section(struct backend *backend, const struct call *call, bool behind_others)
{
    section.backend = backend;
    section.call = call;
    section.found_count = 0;
    section.rows = section.rows_max = 0;
    section.room = INT64_MAX;
    if (!behind_others)
        backend->claim_keys = backend->claim_keyless_ids = (struct list){0};
}

static int64_t locked_before(void)
{
    return (int64_t)(section.backend->claim_keys.count + section.backend->claim_keyless_ids.count);
}

static bool try_lock(struct candidate *c)
{
    struct backend *backend = section.backend;
    int key = c->keyless == QUERY_NO_ID ? (int)c->key : KEY_NONE_SIM, index = (int)(backend - server_backend(0));
    int64_t name = query_lock_name(key, c->keyless);
    if (!sim.plan.unordered && sim.plan.lock_names == 0 && store_is_kept(&sim.store, name, index))
        judge_violation("G5", NULL, "a session claims a key that it keeps: it is given the lock once more");
    c->tried = true;
    c->locked =
        sim.plan.unordered ? query_lock_event(backend, c->keyless) : store_try_lock(&sim.store, name, index, false);
    struct list *list = c->keyless == QUERY_NO_ID ? &backend->claim_keys : &backend->claim_keyless_ids;
    if (c->locked)
        list->values[list->count++] = c->keyless == QUERY_NO_ID ? c->key : c->keyless;
    TRACE("  lock %s%d %s", c->keyless == QUERY_NO_ID ? "k" : "event ",
          (int)(c->keyless == QUERY_NO_ID ? c->key : c->keyless), c->locked ? "taken" : "missed");
    return c->locked;
}

/* Nobody has promised an order. */
static void shuffle(struct list *list, size_t from)
{
    for (size_t i = list->count; i > from + 1; i--) {
        size_t other = from + (size_t)(rng_next(&sim.rng) % (i - from));
        int64_t value = list->values[i - 1];
        list->values[i - 1] = list->values[other];
        list->values[other] = value;
    }
}

static void lock_found(void)
{
    struct backend *backend = section.backend;
    size_t keys = backend->claim_keys.count, ids = backend->claim_keyless_ids.count;
    backend->claim_keys = grown(&backend->claim_keys);
    backend->claim_keyless_ids = grown(&backend->claim_keyless_ids);
    int64_t places = 0;
    for (size_t i = 0; i < section.found_count; i++) {
        struct candidate *c = &section.found[i];
        if (c->busy || c->needs_none)
            continue;
        c->cut = c->late || ++places > section.room;
        if (!c->cut)
            try_lock(c);
    }
    shuffle(&backend->claim_keys, keys);
    shuffle(&backend->claim_keyless_ids, ids);
}

/* ---- answers ---- */

static void put_id(PGresult *res, int column, int64_t id)
{
    if (id != QUERY_NO_ID)
        result_bigint(res, 0, column, id);
}

struct text {
    char *start, *end;
};

static struct text begin_text(size_t elements)
{
    char *start = arena_alloc(sim.arena, elements * KEY_TEXT_MAX + 3);
    *start = '{';
    return (struct text){start, start + 1};
}

static void add_text(struct text *text, bool key, int64_t value)
{
    if (text->end > text->start + 1)
        *text->end++ = ',';
    text->end += key ? (int)key_text(text->end, value) : snprintf(text->end, KEY_TEXT_MAX, "%" PRId64, value);
}

/* Null when there are none, unless it is what the statement leaves for the next one. */
static void put_text(PGresult *res, int column, struct text text, bool always)
{
    *text.end = '}';
    if (always || text.end > text.start + 1)
        result_text(res, 0, column, text.start, (size_t)(text.end + 1 - text.start));
}

void query_put_claim(const struct backend *backend, PGresult *res, int column)
{
    const struct list *keys = &backend->claim_keys, *ids = &backend->claim_keyless_ids;
    struct text claim = begin_text(keys->count), keyless = begin_text(ids->count);
    for (size_t i = 0; i < keys->count; i++)
        add_text(&claim, true, keys->values[i]);
    for (size_t i = 0; i < ids->count; i++)
        add_text(&keyless, false, ids->values[i]);
    put_text(res, column, claim, true);
    put_text(res, column + 1, keyless, true);
}

static void widen(int64_t *low, int64_t *high, const struct candidate *c)
{
    *low = *low == QUERY_NO_ID || c->low < *low ? c->low : *low;
    *high = c->high > *high ? c->high : *high;
}

/* Of those that were missed, or cut off, or all. */
static void put_bounds(PGresult *res, int column, bool missed, bool cut)
{
    int64_t low = QUERY_NO_ID, high = QUERY_NO_ID;
    for (size_t i = 0; i < section.found_count; i++) {
        const struct candidate *c = &section.found[i];
        if ((!missed || (c->tried && !c->locked)) && (!cut || c->cut))
            widen(&low, &high, c);
    }
    put_id(res, column, low);
    put_id(res, column + 1, high);
}

static void put_counts(PGresult *res)
{
    int64_t locked = 0, tried = 0;
    for (size_t i = 0; i < section.found_count; i++) {
        locked += section.found[i].locked;
        tried += section.found[i].tried;
    }
    result_bigint(res, 0, 4, locked);
    result_bigint(res, 0, 5, tried);
}

static bool is_missed(const struct candidate *c)
{
    bool more = section.call->query == QUERY_LOCK_FIRST && c->locked && c->high > c->low;
    return c->keyless == QUERY_NO_ID && (c->busy || more || (c->tried && !c->locked));
}

static void put_missed(PGresult *res, bool ids)
{
    struct text missed = begin_text(3 * section.found_count);
    for (size_t i = 0; i < section.found_count; i++) {
        const struct candidate *c = &section.found[i];
        if (!is_missed(c))
            continue;
        add_text(&missed, true, c->key);
        add_text(&missed, false, ids ? c->low : 1);
        add_text(&missed, false, ids ? c->high : 0);
    }
    put_text(res, 11, missed, false);
}

static void put_low(PGresult *res, int64_t floor)
{
    struct text low = begin_text(3 * section.found_count);
    for (size_t i = 0; i < section.found_count; i++) {
        const struct candidate *c = &section.found[i];
        if (c->low >= floor || c->needs_none)
            continue;
        if (c->keyless == QUERY_NO_ID)
            add_text(&low, true, c->key);
        else
            low.end = stpcpy(low.end, low.end > low.start + 1 ? ",\"\"" : "\"\"");
        add_text(&low, false, c->low);
        add_text(&low, false, c->high);
    }
    put_text(res, 12, low, false);
}

static int64_t count_waits(void)
{
    int64_t n = 0;
    for (size_t i = 0; i < sim.store.wait_count && n < WAITS_TOLD; i++)
        n += query_sees(section.backend, &sim.store.waits[i].version);
    return n;
}

static PGresult *answer(void)
{
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, SECTION_COLUMNS);
    put_counts(res);
    query_put_claim(section.backend, res, 9);
    return res;
}

/* ---- sections ---- */

/* Of its key there is an event before it, above the floor. */
static bool is_late(const struct candidate *c, int64_t floor)
{
    const struct store *store = &sim.store;
    for (size_t i = 0; i < store->row_count && store->rows[i].id < c->low; i++)
        if (c->keyless == QUERY_NO_ID && store->rows[i].key == c->key && store->rows[i].id >= floor &&
            query_sees_row(section.backend, &store->rows[i]))
            return true;
    return false;
}

static void lock_ids(struct backend *backend, const struct call *call)
{
    const int64_t *n = call->n;
    begin_section(backend, call, n[8] != 0);
    section.room = n[4] - locked_before() < n[3] ? n[4] - locked_before() : n[3];
    section.rows_max = section.room > 0 ? n[2] : 0;
    look_at(n[0], n[1], call->query == QUERY_LOCK_OLDEST);
    for (size_t i = 0; i < section.found_count; i++) {
        struct candidate *c = &section.found[i];
        bool keyless = c->keyless != QUERY_NO_ID;
        c->late = call->query == QUERY_LOCK_FIRST && is_late(c, n[9]);
        c->busy = keyless ? has(&call->lists[7], c->keyless) : has(&call->lists[6], c->key);
        c->needs_none = query_find_wait(backend, c->key, c->keyless) ||
                        (keyless ? has(&backend->claim_keyless_ids, c->keyless) : has(&backend->claim_keys, c->key));
    }
    lock_found();
    PGresult *res = answer();
    put_bounds(res, 0, false, false);
    put_bounds(res, 2, true, false);
    put_bounds(res, 6, false, true);
    result_bigint(res, 0, 8, section.rows >= section.rows_max);
    put_missed(res, true);
    put_low(res, n[9]);
    result_bigint(res, 0, 13, count_waits());
    server_reply(backend, res);
}

static void lock_named(struct backend *backend, const struct call *call)
{
    const struct list *named = &call->lists[0];
    begin_section(backend, call, false);
    for (size_t i = 0; i < named->count; i++)
        add_candidate(named->values[i], QUERY_NO_ID, QUERY_NO_ID)->needs_none =
            query_find_wait(backend, named->values[i], QUERY_NO_ID) != NULL;
    lock_found();
    PGresult *res = answer();
    put_missed(res, false);
    server_reply(backend, res);
}

static bool is_added(const struct wait *wait)
{
    for (size_t i = 0; i < section.found_count; i++) {
        const struct candidate *c = &section.found[i];
        if (wait->key == KEY_NONE_SIM ? c->keyless == wait->head : c->key == wait->key)
            return true;
    }
    return false;
}

static bool is_due(const struct wait *wait)
{
    const struct backend *backend = section.backend;
    const struct list *lists = section.call->lists;
    bool left_out = wait->key == KEY_NONE_SIM
                        ? has(&lists[4], wait->head) || has(&backend->claim_keyless_ids, wait->head)
                        : has(&lists[3], wait->key) || has(&backend->claim_keys, wait->key);
    return wait->next_at <= backend->started_at && !left_out && query_sees(backend, &wait->version) && !is_added(wait);
}

static const struct wait *next_due(void)
{
    const struct wait *next = NULL;
    for (size_t i = 0; i < sim.store.wait_count; i++) {
        const struct wait *wait = &sim.store.waits[i];
        if (is_due(wait) && (!next || wait->next_at < next->next_at))
            next = wait;
    }
    return next;
}

static void lock_due(struct backend *backend, const struct call *call)
{
    const int64_t *n = call->n;
    begin_section(backend, call, n[5] != 0);
    int64_t room = n[1] - locked_before() < n[0] ? n[1] - locked_before() : n[0];
    const struct wait *next;
    while ((int64_t)section.found_count < room && (next = next_due()))
        add_candidate(next->key == KEY_NONE_SIM ? QUERY_NO_ID : next->key,
                      next->key == KEY_NONE_SIM ? next->head : QUERY_NO_ID, QUERY_NO_ID);
    lock_found();
    PGresult *res = answer();
    put_missed(res, false);
    server_reply(backend, res);
}

static bool a_wait_is_over(const struct backend *backend)
{
    for (size_t i = 0; i < sim.store.wait_count; i++)
        if (sim.store.waits[i].next_at <= backend->started_at && query_sees(backend, &sim.store.waits[i].version))
            return true;
    return false;
}

/* fresh_lock.sql */
static void lock_fresh(struct backend *backend, const struct call *call)
{
    begin_section(backend, call, false);
    section.rows_max = call->n[1];
    look_at(call->n[0] == INT64_MAX ? INT64_MAX : call->n[0] + 1, INT64_MAX, false);
    for (size_t i = 0; i < section.found_count; i++)
        section.found[i].needs_none = query_find_wait(backend, section.found[i].key, section.found[i].keyless) != NULL;
    lock_found();
    int64_t locked = 0;
    for (size_t i = 0; i < section.found_count; i++)
        locked += section.found[i].locked;
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 9);
    put_bounds(res, 0, false, false);
    put_bounds(res, 2, true, false);
    result_bigint(res, 0, 4, locked);
    query_put_claim(backend, res, 5);
    result_bigint(res, 0, 7, section.rows >= section.rows_max);
    result_bigint(res, 0, 8, a_wait_is_over(backend));
    server_reply(backend, res);
}

bool query_lock(struct backend *backend, const struct call *call)
{
    switch (call->query) {
    case QUERY_LOCK_NEWEST:
    case QUERY_LOCK_FIRST:
    case QUERY_LOCK_OLDEST:
        lock_ids(backend, call);
        return true;
    case QUERY_LOCK_NAMED:
        lock_named(backend, call);
        return true;
    case QUERY_LOCK_DUE:
        lock_due(backend, call);
        return true;
    case QUERY_LOCK_FRESH:
        lock_fresh(backend, call);
        return true;
    default:
        return false;
    }
}
