/* What the statements of sql/claim/ and sql/horizon/ read, and the locks of sessions. */
#include "tests/simulation/hold.h"
#include "tests/simulation/judge.h"
#include "tests/simulation/result.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

bool query_sees(const struct backend *backend, const struct version *version)
{
    return store_sees(&sim.store, &backend->snapshot, version);
}

bool query_sees_row(const struct backend *backend, const struct row *row)
{
    return query_sees(backend, &row->version) && !(sim.plan.passes && row->due_at > backend->started_at);
}

/* The entry of a key, or of an event without one. */
const struct wait *query_find_wait(const struct backend *backend, int64_t key, int64_t keyless)
{
    for (size_t i = 0; i < sim.store.wait_count; i++) {
        const struct wait *wait = &sim.store.waits[i];
        bool same = keyless == QUERY_NO_ID ? wait->key == key : wait->key == KEY_NONE_SIM && wait->head == keyless;
        if (same && query_sees(backend, &wait->version))
            return wait;
    }
    return NULL;
}

int64_t query_left_behind(const struct call *call, int at, int64_t key, int64_t keyless)
{
    const struct list *keys = &call->lists[at], *ids = &call->lists[at + 1];
    int64_t least = QUERY_NO_ID;
    for (size_t i = 0; i < keys->count; i++)
        if (keyless == QUERY_NO_ID ? keys->values[i] == key
                                   : keys->values[i] == KEY_NONE_SIM && ids->values[i] == keyless)
            least = least == QUERY_NO_ID || ids->values[i] < least ? ids->values[i] : least;
    return least;
}

static void reply_event(struct backend *backend, const struct wait *wait, const struct row *row)
{
    PGresult *res = result_new(PGRES_SINGLE_TUPLE, 1, 14);
    if (wait) {
        bool counts = wait->token == 0 || wait->head == wait->taken_id;
        result_int(res, 0, 0, counts ? (int32_t)wait->attempts + (wait->token != 0) : 0);
        result_bigint(res, 0, 1, wait->head);
    }
    if (wait && !row && wait->key != KEY_NONE_SIM)
        result_key(res, 0, 2, wait->key);
    if (row) {
        static const char payload[2048];
        bool oversize = sim.plan.queue.max_event_bytes > 0 && row->bytes > sim.plan.queue.max_event_bytes;
        result_bigint(res, 0, 3, row->id);
        result_tid(res, 0, 12, row->id);
        judge_read(backend->process, row, backend->reads_paused);
        if (oversize)
            result_bigint(res, 0, 5, row->bytes);
        else
            result_text(res, 0, 8, payload, (size_t)row->bytes);
        if (row->sent != KEY_NONE_SIM)
            result_key(res, 0, 6, row->sent);
        if (sim.plan.holds && row->due_at > backend->started_at)
            result_bigint(res, 0, 13, row->due_at - backend->started_at);
    }
    server_reply(backend, res);
}

/* A lease that does not wait has run out, and whoever reads it takes it over. */
static bool is_waiting(const struct backend *backend, const struct wait *wait)
{
    bool waiting = wait && wait->next_at > backend->started_at;
    if (wait && !waiting && wait->token != 0)
        hold_taken_over(wait, backend->part);
    return waiting;
}

/* Up to `most` events of a key. */
static void read_key(struct backend *backend, const struct call *call, int64_t key, int64_t most, int64_t *left)
{
    const struct wait *wait = query_find_wait(backend, key, QUERY_NO_ID);
    if (is_waiting(backend, wait))
        return;
    int64_t floor = wait && wait->head < call->n[1] ? wait->head : call->n[1],
            left_at = query_left_behind(call, 4, key, QUERY_NO_ID);
    floor = left_at != QUERY_NO_ID && left_at < floor ? left_at : floor;
    bool any = false;
    for (size_t i = 0; i < sim.store.row_count && most > 0 && *left > 0; i++) {
        const struct row *row = &sim.store.rows[i];
        if (row->key != key || row->id < floor || !query_sees_row(backend, row))
            continue;
        reply_event(backend, wait, row);
        any = true;
        most--;
        --*left;
    }
    if (!any && wait && *left > 0) {
        reply_event(backend, wait, NULL);
        --*left;
    }
}

static void read_keyless(struct backend *backend, int64_t id, int64_t *left)
{
    const struct wait *wait = query_find_wait(backend, QUERY_NO_ID, id);
    const struct row *row = store_find_row(&sim.store, id);
    if (row && !query_sees_row(backend, row))
        row = NULL;
    if (*left == 0 || is_waiting(backend, wait) || (!wait && !row))
        return;
    reply_event(backend, wait, row);
    --*left;
}

static void read_keyless_ids(struct backend *backend, int64_t *left)
{
    for (size_t i = 0; i < backend->claim_keyless_ids.count; i++)
        read_keyless(backend, backend->claim_keyless_ids.values[i], left);
    server_reply(backend, result_new(PGRES_TUPLES_OK, 0, 12));
}

/* Whether the queue is paused is asked in the same snapshot. */
static void begin_read(struct backend *backend)
{
    backend->reads_paused = sim.now < sim.paused_until;
    if (!backend->reads_paused)
        return;
    PGresult *res = result_new(PGRES_SINGLE_TUPLE, 1, 13);
    result_int(res, 0, 0, -1);
    server_reply(backend, res);
}

static void run_read(struct backend *backend, const struct call *call)
{
    int64_t left = call->n[3];
    begin_read(backend);
    for (size_t i = 0; i < backend->claim_keys.count; i++)
        read_key(backend, call, backend->claim_keys.values[i], call->n[2], &left);
    read_keyless_ids(backend, &left);
}

/* fresh_read.sql: what waits by now is left to others, and so is all while the queue is paused. */
static void run_read_fresh(struct backend *backend, const struct call *call)
{
    int64_t left = call->n[3];
    bool paused = sim.now < sim.paused_until;
    backend->reads_paused = false; /* nothing is read then */
    struct call same = *call;
    same.lists[4] = same.lists[5] = (struct list){0};
    for (size_t i = 0; i < backend->claim_keys.count && !paused; i++)
        if (!query_find_wait(backend, backend->claim_keys.values[i], QUERY_NO_ID))
            read_key(backend, &same, backend->claim_keys.values[i], call->n[2], &left);
    for (size_t i = 0; i < backend->claim_keyless_ids.count && !paused; i++)
        if (!query_find_wait(backend, QUERY_NO_ID, backend->claim_keyless_ids.values[i]))
            read_keyless(backend, backend->claim_keyless_ids.values[i], &left);
    server_reply(backend, result_new(PGRES_TUPLES_OK, 0, 12));
}

/* unordered_read.sql */
static void run_read_events(struct backend *backend, const struct call *call)
{
    int64_t left = call->n[1];
    begin_read(backend);
    read_keyless_ids(backend, &left);
}

static int compare_keys(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

/* In the order of the keys, first those that do not wait and were not left behind. */
static void run_read_few(struct backend *backend, const struct call *call)
{
    int64_t left = call->n[3];
    begin_read(backend);
    qsort(backend->claim_keys.values, backend->claim_keys.count, sizeof backend->claim_keys.values[0], compare_keys);
    for (int waiting = 0; waiting <= 1; waiting++)
        for (size_t i = 0; i < backend->claim_keys.count; i++) {
            int64_t key = backend->claim_keys.values[i];
            bool apart = query_find_wait(backend, key, QUERY_NO_ID) ||
                         query_left_behind(call, 4, key, QUERY_NO_ID) != QUERY_NO_ID;
            if (apart == waiting)
                read_key(backend, call, key, waiting ? call->n[2] : INT64_MAX, &left);
        }
    read_keyless_ids(backend, &left);
}

/* ---- the horizon ---- */

static void run_seen(struct backend *backend, bool drawn)
{
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 3);
    result_bigint(res, 0, 0, 1);
    if (drawn)
        result_bigint(res, 0, 1, sim.store.drawn);
    if (drawn)
        result_key(res, 0, 2, 1); /* always the same sequence */
    for (size_t i = sim.store.row_count; !drawn && i-- > 0;)
        if (query_sees(backend, &sim.store.rows[i].version)) {
            result_bigint(res, 0, 1, sim.store.rows[i].id);
            break;
        }
    server_reply(backend, res);
}

static void run_holders(struct backend *backend, const struct call *call)
{
    const struct store *store = &sim.store;
    int holders[64], count = 0;
    bool further = !sim.plan.sequence || store->drawn != call->n[0];
    for (int i = store->txn_count; further && i-- > 0 && count < 64;)
        if (store->txns[i].state == TXN_OPEN && store->txns[i].draws)
            holders[count++] = i;
    PGresult *res = result_new(PGRES_TUPLES_OK, count, 1);
    for (int row = 0; row < count; row++)
        result_key(res, row, 0, holders[row]);
    server_reply(backend, res);
}

static bool goes_on(const struct list *writers, int txn)
{
    for (size_t i = 0; i < writers->count; i++)
        if (writers->values[i] == txn)
            return true;
    return false;
}

/* Nothing is known at the first look, and while somebody goes on who wrote to parked at the last one. The relay sends
 * back the writers that it was told as it was: here, where they are. */
static void run_movers(struct backend *backend, const struct call *call)
{
    const struct list *before = (const struct list *)(uintptr_t)call->n[0];
    struct list *writers = arena_alloc(sim.arena, sizeof *writers);
    *writers = (struct list){.values = arena_array(sim.arena, BACKENDS_MAX, sizeof(int64_t))};
    backend->movers = (struct list){.values = arena_array(sim.arena, sim.store.lock_count, sizeof(int64_t))};
    backend->movers_known = before != NULL;
    for (int i = 0; i < BACKENDS_MAX; i++)
        if (server_backend(i)->writes_parked) {
            writers->values[writers->count++] = server_backend(i)->txn;
            backend->movers_known = backend->movers_known && !goes_on(before, server_backend(i)->txn);
        }
    for (size_t i = 0; i < sim.store.lock_count; i++)
        backend->movers.values[backend->movers.count++] = sim.store.locks[i].name;
    char text[24];
    int size = snprintf(text, sizeof text, "%" PRIuPTR, (uintptr_t)writers);
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 2);
    result_text(res, 0, 0, text, (size_t)size);
    server_reply(backend, res);
}

static bool is_moved(const struct backend *backend, int64_t name)
{
    bool moved = !backend->movers_known;
    for (size_t i = 0; i < backend->movers.count && !moved; i++)
        moved = backend->movers.values[i] == name;
    return moved;
}

/* Whether its entry covers it: what is known of this key's reads, then, is where they begin. */
static bool is_covered(const struct backend *backend, const struct row *row)
{
    if (row->key == KEY_NONE_SIM)
        return query_find_wait(backend, QUERY_NO_ID, row->id) != NULL;
    const struct wait *wait = query_find_wait(backend, row->key, QUERY_NO_ID);
    return wait && wait->head <= row->id && wait->token == 0;
}

/* Its event keeps the floor, or has to be remembered. */
static bool is_bare(const struct backend *backend, const struct row *row)
{
    return !is_covered(backend, row) || (row->key != KEY_NONE_SIM && is_moved(backend, query_lock_name(row->key, 0)));
}

/* Whoever may have moved its entry may have looked before the key's last events were there. */
static bool has_more_above(const struct backend *backend, const struct call *call, const struct row *of)
{
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        if (of->key != KEY_NONE_SIM && row->key == of->key && row->id > call->n[1] && row->id <= call->n[0] &&
            query_sees(backend, &row->version))
            return true;
    }
    return false;
}

static bool is_left_behind(const struct call *call, const struct row *row)
{
    bool keyless = row->key == KEY_NONE_SIM;
    int64_t least = query_left_behind(call, 4, keyless ? QUERY_NO_ID : row->key, keyless ? row->id : QUERY_NO_ID);
    return least != QUERY_NO_ID && least <= row->id;
}

/* Of what was left behind, the first that is still there. */
static const struct row *find_left(const struct backend *backend, const struct call *call, size_t place)
{
    int64_t key = call->lists[4].values[place], from = call->lists[5].values[place],
            to = key == KEY_NONE_SIM       ? from
                 : call->n[0] > call->n[1] ? call->n[0]
                                           : call->n[1];
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        if (row->id >= from && row->id <= to && (key == KEY_NONE_SIM || row->key == key) &&
            query_sees(backend, &row->version))
            return row;
    }
    return NULL;
}

static void run_floor(struct backend *backend, const struct call *call)
{
    int64_t looked_at = 0;
    size_t left = call->lists[4].count;
    PGresult *res = result_new(PGRES_TUPLES_OK, left > 0 ? (int)left : 1, 6);
    for (size_t place = 0; place < left; place++) {
        const struct row *row = find_left(backend, call, place);
        result_bigint(res, (int)place, 4, (int64_t)place + 1);
        if (row && (is_bare(backend, row) || has_more_above(backend, call, row)))
            result_bigint(res, (int)place, 5, row->id);
    }
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        if (row->id < call->n[0] || row->id > call->n[1] || !query_sees(backend, &row->version))
            continue;
        if (!is_left_behind(call, row) && is_bare(backend, row)) {
            result_bigint(res, 0, 0, row->id);
            result_bigint(res, 0, 1, is_covered(backend, row));
            if (row->key != KEY_NONE_SIM)
                result_key(res, 0, 3, row->key);
            break;
        }
        if (++looked_at >= call->n[3]) {
            result_bigint(res, 0, 2, row->id);
            break;
        }
    }
    server_reply(backend, res);
}

static void run_peek(struct backend *backend, const struct call *call)
{
    bool news = false;
    for (size_t i = 0; i < sim.store.row_count && !news; i++)
        news = sim.store.rows[i].id > call->n[0] && query_sees_row(backend, &sim.store.rows[i]);
    for (size_t i = 0; i < sim.store.wait_count && !news; i++)
        news = sim.store.waits[i].next_at <= backend->started_at && query_sees(backend, &sim.store.waits[i].version);
    server_reply(backend, result_new(PGRES_TUPLES_OK, news, 1));
}

static bool in_ranges(const struct list *from, const struct list *to, int64_t id)
{
    for (size_t i = 0; i < from->count; i++)
        if (from->values[i] <= id && id <= to->values[i])
            return true;
    return false;
}

/* Outside of the ranges only what has an entry that points at it, or before it. */
static void run_empty(struct backend *backend, const struct call *call)
{
    bool waiting = false;
    for (size_t i = 0; i < sim.store.row_count && !waiting; i++) {
        const struct row *row = &sim.store.rows[i];
        if (!query_sees_row(backend, row))
            continue;
        const struct wait *wait = row->key == KEY_NONE_SIM ? query_find_wait(backend, QUERY_NO_ID, row->id)
                                                           : query_find_wait(backend, row->key, QUERY_NO_ID);
        if (in_ranges(&call->lists[1], &call->lists[2], row->id) || (wait && wait->head <= row->id))
            waiting = !wait || wait->next_at != AT_INFINITY;
    }
    server_reply(backend, result_new(PGRES_TUPLES_OK, waiting, 1));
}

/* The queue; or a key that was paused lately and may be resumed by now, which is no reason to lose anything. */
static void run_paused(struct backend *backend)
{
    bool queue = sim.now < sim.paused_until;
    bool key = sim.plan.counts.pauses > 0 && sim_fails(100);
    bool leases = query_has_owners(backend);
    PGresult *res = result_new(PGRES_TUPLES_OK, queue + key + leases, 4);
    if (key)
        result_key(res, queue, 0, sim_draw(0, sim.plan.keys - 1));
    if (leases)
        result_bigint(res, queue + key, 3, 2);
    server_reply(backend, res);
}

/* ---- locks of the session ---- */

static bool change_lock(const struct backend *backend, int64_t name, bool keep)
{
    int index = (int)(backend - server_backend(0));
    if (keep)
        return store_try_lock(&sim.store, name, index, true);
    bool freed = store_unlock(&sim.store, name, index);
    if (!freed)
        judge_violation("locks", NULL, "a session frees a lock that it does not have");
    return freed;
}

static void run_keep(struct backend *backend, const struct call *call)
{
    const struct list *keys = &call->lists[1], *keyless_ids = &call->lists[2];
    bool keep = call->query == QUERY_KEEP;
    int64_t count = 0;
    for (size_t i = 0; i < keys->count; i++)
        count += change_lock(backend, query_lock_name((int)keys->values[i], 0), keep);
    for (size_t i = 0; i < keyless_ids->count; i++)
        count += change_lock(backend, query_lock_name(KEY_NONE_SIM, keyless_ids->values[i]), keep);
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 1);
    result_bigint(res, 0, 0, count);
    server_reply(backend, res);
}

/* The statements of a claim; false: it is none of them. */
static bool run_claim(struct backend *backend, const struct call *call)
{
    if (query_lock(backend, call))
        return true;
    switch (call->query) {
    case QUERY_LOCK_LATEST:
    case QUERY_LOCK_URGENT:
    case QUERY_LOCK_TOP:
    case QUERY_LOCK_BELOW:
    case QUERY_LOCK_LOWEST:
        query_lock_events(backend, call);
        return true;
    case QUERY_READ:
        run_read(backend, call);
        return true;
    case QUERY_READ_FRESH:
        run_read_fresh(backend, call);
        return true;
    case QUERY_READ_EVENTS:
        run_read_events(backend, call);
        return true;
    case QUERY_READ_FEW:
        run_read_few(backend, call);
        return true;
    default:
        return false;
    }
}

bool query_run(struct backend *backend, const struct call *call)
{
    if (run_claim(backend, call) || query_rest(backend, call))
        return true;
    switch (call->query) {
    case QUERY_KEEP:
    case QUERY_FREE:
        run_keep(backend, call);
        return true;
    case QUERY_DRAWN:
    case QUERY_SEEN:
        run_seen(backend, call->query == QUERY_DRAWN);
        return true;
    case QUERY_HOLDERS:
        run_holders(backend, call);
        return true;
    case QUERY_MOVERS:
        run_movers(backend, call);
        return true;
    case QUERY_FLOOR:
        run_floor(backend, call);
        return true;
    case QUERY_PEEK:
        run_peek(backend, call);
        return true;
    case QUERY_EMPTY:
        run_empty(backend, call);
        return true;
    case QUERY_PAUSED:
        run_paused(backend);
        return true;
    case QUERY_UPKEEP:
        server_reply(backend, result_new(PGRES_TUPLES_OK, 1, 2));
        return true;
    case QUERY_NOTHING:
        /* '20ms' or '5s' */
        backend->patience_us = call->n[0] > 5 ? call->n[0] * MS_US : call->n[0] * SECOND_US;
        server_reply(backend, result_new(PGRES_COMMAND_OK, 0, 0));
        return true;
    case QUERY_LISTEN:
        server_reply(backend, result_new(PGRES_COMMAND_OK, 0, 0));
        return true;
    default:
        return query_settle(backend, call);
    }
}
