/* The statements of sql/rest/, and what producers' triggers do. */
#include "tests/simulation/result.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

#include <inttypes.h>
#include <stdio.h>

#define QUEUE_NUMBER 7

bool server_somebody_rests(void)
{
    for (int i = 0; i < BACKENDS_MAX; i++)
        if (server_backend(i)->alive && server_backend(i)->rests > 0)
            return true;
    return false;
}

static void run_lock(struct backend *backend)
{
    bool locked = !sim_fails(50); /* a producer asks just then */
    backend->rests += locked;
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 2);
    result_bool(res, 0, 0, locked);
    result_bigint(res, 0, 1, QUEUE_NUMBER);
    server_reply(backend, res);
}

static void run_unlock(struct backend *backend)
{
    backend->rests -= backend->rests > 0;
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 2);
    result_bool(res, 0, 0, true);
    result_bool(res, 0, 1, true);
    server_reply(backend, res);
}

static bool is_among(const struct list *list, int txn)
{
    for (size_t i = 0; list && i < list->count; i++)
        if (list->values[i] == txn)
            return true;
    return !list;
}

static void add_writer(struct list *writers, const struct list *asked, int txn)
{
    if (txn != TXN_NONE && is_among(asked, txn) && (writers->count == 0 || !is_among(writers, txn)))
        writers->values[writers->count++] = txn;
}

/* The relay sends back the writers that it was told as it was: here, where they are. */
static void run_writers(struct backend *backend, const struct call *call)
{
    const struct list *asked = (const struct list *)(uintptr_t)call->n[3];
    struct list *writers = arena_alloc(sim.arena, sizeof *writers);
    *writers =
        (struct list){.values = arena_array(sim.arena, BACKENDS_MAX + (size_t)sim.store.txn_count, sizeof(int64_t))};
    for (int i = 0; i < sim.store.txn_count; i++)
        if (sim.store.txns[i].state == TXN_OPEN && sim.store.txns[i].draws)
            add_writer(writers, asked, i);
    bool held = false;
    for (int i = 0; i < BACKENDS_MAX; i++) {
        const struct backend *other = server_backend(i);
        if (other->alive && other->writes_parked && other != backend)
            add_writer(writers, asked, other->txn);
        held = held || (other->alive && other->pid == call->n[2] && other->rests > 0);
    }
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 4);
    result_bigint(res, 0, 3, 1);
    if (!sim.plan.rests)
        result_text(res, 0, 0, "no trigger", sizeof "no trigger" - 1);
    result_bool(res, 0, 1, held);
    char text[24];
    int size = snprintf(text, sizeof text, "%" PRIuPTR, (uintptr_t)writers);
    if (writers->count > 0)
        result_text(res, 0, 2, text, (size_t)size);
    server_reply(backend, res);
}

/* Its event waits for a time that is known, or until somebody opens its key. */
static bool waits(const struct backend *backend, const struct row *row)
{
    const struct wait *wait = row->key == KEY_NONE_SIM ? query_find_wait(backend, QUERY_NO_ID, row->id)
                                                       : query_find_wait(backend, row->key, QUERY_NO_ID);
    return wait && wait->next_at > backend->started_at;
}

static void note_due(instant_us *due_at, const struct backend *backend, int64_t at)
{
    if (at > backend->started_at && at != AT_INFINITY && at < *due_at)
        *due_at = at;
}

static void run_look(struct backend *backend)
{
    bool waiting = false;
    instant_us due_at = INSTANT_NEVER;
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        waiting = waiting || (query_sees_row(backend, row) && !waits(backend, row));
        if (sim.plan.passes && query_sees(backend, &row->version))
            note_due(&due_at, backend, row->due_at);
    }
    for (size_t i = 0; i < sim.store.wait_count; i++) {
        const struct wait *wait = &sim.store.waits[i];
        if (!query_sees(backend, &wait->version))
            continue;
        waiting = waiting || wait->next_at <= backend->started_at || wait->token != 0;
        note_due(&due_at, backend, wait->next_at);
    }
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 3);
    result_bool(res, 0, 0, backend->started_at < sim.paused_until);
    result_bool(res, 0, 1, waiting);
    if (due_at != INSTANT_NEVER)
        result_bigint(res, 0, 2, due_at - sim.now);
    server_reply(backend, res);
}

bool query_rest(struct backend *backend, const struct call *call)
{
    switch (call->query) {
    case QUERY_WAKE_LOCK:
        run_lock(backend);
        return true;
    case QUERY_WAKE_UNLOCK:
        run_unlock(backend);
        return true;
    case QUERY_WRITERS:
        run_writers(backend, call);
        return true;
    case QUERY_LAST_LOOK:
        run_look(backend);
        return true;
    default:
        return false;
    }
}
