/* What the statements of sql/settle/ do. A write meets the newest version of a row, and waits for whoever is changing
 * it; begun again after the wait, it finds its own changes made and goes on. */
#include "tests/simulation/hold.h"
#include "tests/simulation/judge.h"
#include "tests/simulation/result.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

#include <assert.h>

static bool must_wait(struct backend *backend, const struct version *version)
{
    backend->waits_for = store_contested(&sim.store, version, backend->txn);
    return backend->waits_for != TXN_NONE;
}

static bool is_mine(const struct backend *backend, int txn)
{
    return store_is_mine(&sim.store, txn, backend->txn);
}

static bool is_live(const struct backend *backend, const struct version *version)
{
    return store_is_live(&sim.store, version, backend->txn);
}

/* A foreign key, a trigger, a constraint of the archive; until the calm. */
static bool is_refused(struct backend *backend, const struct row *row, bool alone)
{
    if (row->whim != WHIM_REFUSES || sim_is_calm())
        return false;
    judge_refused(row, alone);
    backend->refusal = "23503";
    return true;
}

/* By a trigger that returns null. What excuses another delivery comes with run_kept(). */
static bool is_kept(const struct row *row)
{
    return row->whim == WHIM_STAYS && !sim_is_calm();
}

/* False: has to wait, or fails. */
static bool delete_rows(struct backend *backend, const struct list *ids, bool bury, size_t *ret_gone)
{
    *ret_gone = 0;
    if (!sim.plan.sequence)
        sim.store.txns[backend->txn].draws = true; /* any write locks the table as an insert does */
    for (size_t i = 0; i < ids->count; i++) {
        struct row *row = store_find_row(&sim.store, ids->values[i]);
        if (!row ||
            (!is_mine(backend, row->version.ended_by) && !store_sees(&sim.store, &backend->snapshot, &row->version)))
            continue;
        if (must_wait(backend, &row->version))
            return false;
        if (is_mine(backend, row->version.ended_by)) {
            ++*ret_gone;
        } else if (is_live(backend, &row->version) && is_refused(backend, row, ids->count == 1)) {
            return false;
        } else if (is_live(backend, &row->version) && !is_kept(row)) {
            hold_settles(backend, row->key, row->id);
            row->version.ended_by = backend->part;
            judge_deleted(backend->process, row, bury);
            ++*ret_gone;
        }
    }
    return true;
}

struct wait *query_newest_wait(const struct backend *backend, int key, int64_t head)
{
    for (size_t i = sim.store.wait_count; i-- > 0;) {
        struct wait *wait = &sim.store.waits[i];
        bool same = key == KEY_NONE_SIM ? wait->key == KEY_NONE_SIM && wait->head == head : wait->key == key;
        if (same &&
            (is_live(backend, &wait->version) || store_contested(&sim.store, &wait->version, backend->txn) != TXN_NONE))
            return wait;
    }
    return NULL;
}

bool query_end_wait(struct backend *backend, struct wait *wait)
{
    if (must_wait(backend, &wait->version))
        return false;
    if (is_live(backend, &wait->version))
        wait->version.ended_by = backend->part;
    return true;
}

/* The entry points to an event that comes before the one that is settled: put back, or due since; or one has shown
 * late. */
static bool is_ahead(const struct backend *backend, const struct wait *old, int64_t id)
{
    if (!old || old->token != 0)
        return old && old->head < old->taken_id;
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        bool same = old->key == KEY_NONE_SIM ? row->id == old->head : row->key == old->key;
        if (same && row->id >= old->head && row->id < id && query_sees_row(backend, row))
            return true;
    }
    return false;
}

static bool run_park(struct backend *backend, const struct call *call)
{
    const struct list *ids = &call->lists[1], *keys = &call->lists[2], *attempts = &call->lists[3],
                      *delays = &call->lists[4], *tokens = &call->lists[7];
    for (size_t i = 0; i < ids->count; i++) {
        int key = (int)keys->values[i];
        hold_settles(backend, key, ids->values[i]);
        const struct row *row = store_find_row(&sim.store, ids->values[i]);
        bool there = row && query_sees_row(backend, row);
        if (!there && tokens->count == 0)
            continue;
        struct wait *old = query_newest_wait(backend, key, ids->values[i]);
        if (old && !query_end_wait(backend, old))
            return false;
        int64_t delay = there ? delays->values[i] : 0;
        struct wait wait = {.key = key,
                            .head = ids->values[i],
                            .attempts = attempts->values[i],
                            .next_at = delay < 0 ? AT_INFINITY : sim.now + delay};
        bool closed = delay < 0 && wait.attempts > 0;
        if (is_ahead(backend, old, ids->values[i]) && !closed) {
            wait.head = old->head;
            wait.attempts = 0;
            wait.next_at = sim.now;
        }
        store_add_wait(&sim.store, &wait, backend->part);
        judge_parked(backend->process, ids->values[i], attempts->values[i], delay < 0);
    }
    server_reply(backend, result_new(PGRES_COMMAND_OK, 0, 0));
    return true;
}

static int64_t next_of_key(const struct backend *backend, int64_t key)
{
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        if (row->key == key && query_sees_row(backend, row))
            return row->id;
    }
    return 0;
}

static bool run_unpark(struct backend *backend, const struct call *call)
{
    const struct list *keys = &call->lists[1], *keyless_ids = &call->lists[2];
    for (size_t i = 0; i < keys->count; i++) {
        int key = (int)keys->values[i];
        int64_t head = next_of_key(backend, key);
        /* By ctid: one that has been replaced meanwhile is left alone. */
        hold_settles(backend, key, head);
        struct wait *old = (struct wait *)query_find_wait(backend, key, QUERY_NO_ID);
        if (!old)
            continue;
        if (!query_end_wait(backend, old))
            return false;
        if (head > 0 && is_mine(backend, old->version.ended_by)) {
            const struct wait wait = {.key = key, .head = head, .next_at = sim.now};
            store_add_wait(&sim.store, &wait, backend->part);
        }
    }
    for (size_t i = 0; i < keyless_ids->count; i++) {
        hold_settles(backend, KEY_NONE_SIM, keyless_ids->values[i]);
        struct wait *old = (struct wait *)query_find_wait(backend, KEY_NONE_SIM, keyless_ids->values[i]);
        if (old && !query_end_wait(backend, old))
            return false;
    }
    server_reply(backend, result_new(PGRES_COMMAND_OK, 0, 0));
    return true;
}

/* See deleted_by_place.sql. */
static bool are_where_they_were(const struct list *ids)
{
    for (size_t i = 0; i < ids->count; i++) {
        const struct row *row = store_find_row(&sim.store, ids->values[i]);
        if (row && row->whim == WHIM_MOVES)
            return false;
    }
    return true;
}

static bool run_delete(struct backend *backend, const struct call *call, const struct list *ids)
{
    size_t gone;
    backend->alone = ids->count == 1 ? ids->values[0] : QUERY_NO_ID;
    bool by_place = call->query == QUERY_DONE && call->lists[1].count > 0;
    if (!delete_rows(backend, ids, call->query == QUERY_BURY, &gone))
        return false;
    if (by_place && (gone < ids->count || !are_where_they_were(ids))) {
        backend->refusal = "22P02";
        return false;
    }
    backend->misses = backend->misses || gone < ids->count;
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 2);
    result_bigint(res, 0, 0, (int64_t)gone);
    server_reply(backend, res);
    return true;
}

static bool run_kept(struct backend *backend, const struct list *ids)
{
    for (size_t i = 0; backend->misses && i < ids->count; i++) {
        const struct row *row = store_find_row(&sim.store, ids->values[i]);
        if (!row || !store_sees(&sim.store, &backend->snapshot, &row->version))
            continue;
        judge_refused(row, ids->count == 1);
        backend->misses = false;
        backend->refusal = "22P02";
        return false;
    }
    backend->misses = false;
    server_reply(backend, result_new(PGRES_COMMAND_OK, 0, 0));
    return true;
}

/* See result_tid(). */
static bool are_places_of(const struct list *places, const struct list *ids)
{
    bool all = places->count == ids->count || places->count == 0; /* then by their ids */
    for (size_t i = 0; all && i < places->count; i++)
        all = (uint64_t)places->values[i] >> 32 == (uint32_t)ids->values[i];
    return all;
}

bool query_settle(struct backend *backend, const struct call *call)
{
    switch (call->query) {
    case QUERY_GRANT:
        return query_grant(backend, call);
    case QUERY_RENEW:
        return query_renew(backend, call);
    case QUERY_LEASES:
        return query_leases(backend, call);
    case QUERY_MOVE:
        return query_move(backend, call);
    case QUERY_GIVE_BACK:
        return query_give_back(backend, call);
    case QUERY_OWNERLESS:
        return query_end_ownerless(backend);
    case QUERY_DUE:
        return query_due(backend, call);
    case QUERY_DONE:
        assert(are_places_of(&call->lists[1], &call->lists[0]) && "rows are looked for where they were read");
        return run_delete(backend, call, &call->lists[0]);
    case QUERY_BURY:
        return run_delete(backend, call, &call->lists[1]);
    case QUERY_KEPT:
        return run_kept(backend, &call->lists[0]);
    case QUERY_PARK:
        return run_park(backend, call);
    case QUERY_UNPARK:
        return run_unpark(backend, call);
    case QUERY_SEARCH:
        server_reply(backend, result_new(PGRES_TUPLES_OK, 0, 1)); /* every row can be read */
        return true;
    default:
        return true;
    }
}
