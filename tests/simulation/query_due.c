/* What delayed_due.sql does: the keys of what has become due get an entry, as if it had been put back. */
#include "tests/simulation/result.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

#define OVERLAP_US (2 * SECOND_US)

static bool is_closed(const struct wait *wait)
{
    return wait->next_at == AT_INFINITY && wait->attempts > 0;
}

static bool is_found(const struct backend *backend, const struct row *row, int64_t since)
{
    if (row->due_at <= since || row->due_at > backend->started_at || !query_sees_row(backend, row))
        return false;
    const struct wait *wait = row->key == KEY_NONE_SIM ? query_find_wait(backend, KEY_NONE_SIM, row->id)
                                                       : query_find_wait(backend, row->key, QUERY_NO_ID);
    return !wait || (row->key != KEY_NONE_SIM && wait->head > row->id && !is_closed(wait));
}

/* False: has to wait. */
static bool point_at(struct backend *backend, const struct row *row)
{
    struct wait entry = {.key = row->key, .head = row->id, .next_at = backend->started_at};
    struct wait *old = query_newest_wait(backend, row->key, row->id);
    if (old && !query_end_wait(backend, old))
        return false;
    if (old && store_is_mine(&sim.store, old->version.ended_by, backend->txn)) {
        entry = *old;
        if (is_closed(&entry)) {
            store_add_wait(&sim.store, &entry, backend->part);
            return true; /* it remains at what closed it */
        }
        entry.head = row->key != KEY_NONE_SIM && row->id < entry.head ? row->id : entry.head;
        entry.attempts = entry.token == 0 && row->key != KEY_NONE_SIM ? 0 : entry.attempts;
    }
    store_add_wait(&sim.store, &entry, backend->part);
    return true;
}

bool query_due(struct backend *backend, const struct call *call)
{
    int64_t since = call->n[1] > 0 ? call->n[1] - OVERLAP_US : backend->started_at, found = 0;
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        if (!is_found(backend, row, since))
            continue;
        found++;
        if (!point_at(backend, row))
            return false;
    }
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 2);
    result_bigint(res, 0, 0, found);
    result_bigint(res, 0, 1, backend->started_at);
    server_reply(backend, res);
    return true;
}
