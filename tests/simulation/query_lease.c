/* What the statements of sql/lease/ do, and those of sql/settle/ that are about leases. An entry is found by its token,
 * in its newest version: one that has another token by then is somebody else's. */
#include "tests/simulation/hold.h"
#include "tests/simulation/result.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

static bool is_mine(const struct backend *backend, int txn)
{
    return store_is_mine(&sim.store, txn, backend->txn);
}

static struct wait *find_leased(const struct backend *backend, int64_t token)
{
    for (size_t i = sim.store.wait_count; i-- > 0;) {
        struct wait *wait = &sim.store.waits[i];
        if (wait->token == token && (store_is_live(&sim.store, &wait->version, backend->txn) ||
                                     store_contested(&sim.store, &wait->version, backend->txn) != TXN_NONE))
            return wait;
    }
    return NULL;
}

/* Another version of the entry, to be changed. */
static struct wait *replace(const struct backend *backend, struct wait *old)
{
    struct wait copy = *old;
    old->version.ended_by = backend->part;
    return store_add_wait(&sim.store, &copy, backend->part);
}

static int owner_of(int64_t pid)
{
    return server_has_backend((int)pid) ? (int)pid : 0;
}

bool query_grant(struct backend *backend, const struct call *call)
{
    const struct list *keys = &call->lists[1], *ids = &call->lists[2], *failures = &call->lists[3],
                      *tokens = &call->lists[4];
    for (size_t i = 0; i < tokens->count; i++) {
        struct wait lease = {.key = (int)keys->values[i],
                             .head = ids->values[i],
                             .taken_id = ids->values[i],
                             .taken_at = sim.now,
                             .attempts = failures->values[i],
                             .next_at = sim.now + call->n[6],
                             .token = tokens->values[i],
                             .owner = (int)call->n[7],
                             .process = backend->process};
        struct wait *old = query_newest_wait(backend, lease.key, lease.head);
        if (old && !query_end_wait(backend, old))
            return false;
        bool over = old && old->token != 0 && !is_mine(backend, old->version.made_by);
        const struct wait *added = store_add_wait(&sim.store, &lease, backend->part);
        hold_leased((int)(backend - server_backend(0)), added, over);
    }
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 1);
    result_bigint(res, 0, 0, (int64_t)tokens->count);
    server_reply(backend, res);
    return true;
}

enum ours { OURS, OTHERS, MUST_WAIT };

/* Is it still ours? Then its entry is locked. When its term is over, whoever has the key's lock may be taking it. */
static enum ours lock_leased(struct backend *backend, int64_t token, struct wait **ret)
{
    struct wait *wait = *ret = find_leased(backend, token);
    if (!wait)
        return OTHERS;
    backend->waits_for = store_contested(&sim.store, &wait->version, backend->txn);
    if (backend->waits_for != TXN_NONE)
        return MUST_WAIT;
    int index = (int)(backend - server_backend(0));
    if (wait->next_at <= sim.now && !store_try_lock(&sim.store, query_lock_name(wait->key, wait->head), index, false))
        return OTHERS;
    store_lock_version(&wait->version, backend->txn);
    return OURS;
}

bool query_leases(struct backend *backend, const struct call *call)
{
    const struct list *tokens = &call->lists[0];
    for (size_t i = 0; i < tokens->count; i++) {
        struct wait *wait;
        enum ours ours = lock_leased(backend, tokens->values[i], &wait);
        if (ours == OTHERS)
            backend->refusal = "22P02";
        if (ours != OURS)
            return false;
    }
    server_reply(backend, result_new(PGRES_TUPLES_OK, 0, 1));
    return true;
}

bool query_renew(struct backend *backend, const struct call *call)
{
    const struct list *tokens = &call->lists[0];
    size_t *lost = arena_array(sim.arena, tokens->count, sizeof *lost), lost_count = 0;
    bool *held = arena_array(sim.arena, tokens->count, sizeof *held);
    for (size_t i = 0; i < tokens->count; i++) {
        struct wait *wait;
        if (lock_leased(backend, tokens->values[i], &wait) != OURS) {
            backend->waits_for = TXN_NONE;
            held[lost_count] = wait && wait->next_at > sim.now;
            lost[lost_count++] = i;
            continue;
        }
        struct wait *renewed = replace(backend, wait);
        renewed->next_at = sim.now + call->n[2];
        renewed->owner = owner_of(call->n[3]);
        hold_renewed(renewed);
    }
    PGresult *res = result_new(PGRES_TUPLES_OK, (int)lost_count, 2);
    for (size_t i = 0; i < lost_count; i++) {
        struct span text = tokens->texts[lost[i]];
        result_text(res, (int)i, 0, text.data, text.size);
        result_bool(res, (int)i, 1, held[i]);
    }
    server_reply(backend, res);
    return true;
}

bool query_move(struct backend *backend, const struct call *call)
{
    const struct list *tokens = &call->lists[0], *ids = &call->lists[1];
    for (size_t i = 0; i < tokens->count; i++) {
        struct wait *wait = find_leased(backend, tokens->values[i]);
        if (!wait)
            continue;
        struct wait *moved = replace(backend, wait);
        moved->head = moved->head == moved->taken_id ? ids->values[i] : moved->head;
        moved->taken_id = ids->values[i];
        moved->attempts = 0;
    }
    server_reply(backend, result_new(PGRES_COMMAND_OK, 0, 0));
    return true;
}

bool query_give_back(struct backend *backend, const struct call *call)
{
    const struct list *tokens = &call->lists[0];
    for (size_t i = 0; i < tokens->count; i++) {
        struct wait *wait = find_leased(backend, tokens->values[i]);
        if (!wait)
            continue;
        struct wait *free = replace(backend, wait);
        free->next_at = sim.now;
        free->token = 0;
        free->attempts = free->head == free->taken_id ? free->attempts : 0;
    }
    server_reply(backend, result_new(PGRES_COMMAND_OK, 0, 0));
    return true;
}

bool query_has_owners(const struct backend *backend)
{
    for (size_t i = 0; i < sim.store.wait_count; i++) {
        const struct wait *wait = &sim.store.waits[i];
        if (wait->token != 0 && wait->owner != 0 && query_sees(backend, &wait->version))
            return true;
    }
    return false;
}

/* What somebody has locked is left for another time. */
bool query_end_ownerless(struct backend *backend)
{
    size_t count = sim.store.wait_count, ended = 0;
    for (size_t i = 0; i < count; i++) {
        struct wait *wait = &sim.store.waits[i];
        bool gone = wait->token != 0 && wait->owner != 0 && !server_has_backend(wait->owner);
        if (!gone || !query_sees(backend, &wait->version))
            continue;
        wait = find_leased(backend, wait->token); /* as it is now */
        if (!wait || wait->owner == 0 || server_has_backend(wait->owner) ||
            store_contested(&sim.store, &wait->version, backend->txn) != TXN_NONE)
            continue;
        struct wait *over = replace(backend, wait);
        over->next_at = over->next_at < sim.now ? over->next_at : sim.now;
        over->owner = 0;
    }
    for (size_t i = 0; i < sim.store.wait_count; i++)
        ended += is_mine(backend, sim.store.waits[i].version.made_by);
    PGresult *res = result_new(PGRES_TUPLES_OK, 1, 1);
    result_bigint(res, 0, 0, (int64_t)ended);
    server_reply(backend, res);
    return true;
}
