#include "tests/simulation/store.h"

#include <assert.h>

void store_clear(struct store *store)
{
    store->txn_count = 0;
    store->commits = 0;
    store->row_count = store->wait_count = store->lock_count = 0;
    store->drawn = 0;
}

int store_begin(struct store *store)
{
    assert(store->txn_count < TXNS_MAX);
    store->txns[store->txn_count] = (struct txn){.state = TXN_OPEN, .within = store->txn_count};
    return store->txn_count++;
}

int store_begin_part(struct store *store, int txn)
{
    int part = store_begin(store);
    store->txns[part].within = txn;
    return part;
}

enum txn_state store_state(const struct store *store, int txn)
{
    const struct txn *part = &store->txns[txn];
    return part->state == TXN_ABORTED ? TXN_ABORTED : store->txns[part->within].state;
}

bool store_is_mine(const struct store *store, int txn, int me)
{
    return txn != TXN_NONE && store->txns[txn].within == me && store->txns[txn].state != TXN_ABORTED;
}

void store_commit(struct store *store, int txn)
{
    assert(store->txns[txn].state == TXN_OPEN);
    store->txns[txn].state = TXN_COMMITTED;
    store->txns[txn].committed_as = ++store->commits;
}

void store_abort(struct store *store, int txn)
{
    assert(store->txns[txn].state == TXN_OPEN);
    store->txns[txn].state = TXN_ABORTED;
}

static bool has_happened(const struct store *store, const struct snapshot *snapshot, int txn)
{
    if (txn == TXN_NONE)
        return false;
    return store_is_mine(store, txn, snapshot->txn) ||
           (store_state(store, txn) == TXN_COMMITTED &&
            store->txns[store->txns[txn].within].committed_as <= snapshot->commits);
}

bool store_sees(const struct store *store, const struct snapshot *snapshot, const struct version *version)
{
    return has_happened(store, snapshot, version->made_by) && !has_happened(store, snapshot, version->ended_by);
}

void store_lock_version(struct version *version, int me)
{
    version->locked_by = me;
}

bool store_is_locked(const struct store *store, const struct version *version)
{
    return version->locked_by != TXN_NONE && store->txns[version->locked_by].state == TXN_OPEN;
}

int store_contested(const struct store *store, const struct version *version, int me)
{
    int made = version->made_by, ended = version->ended_by;
    if (store_is_locked(store, version) && version->locked_by != me)
        return version->locked_by;
    if (store->txns[made].within != me && store_state(store, made) == TXN_OPEN)
        return store->txns[made].within;
    if (ended != TXN_NONE && store->txns[ended].within != me && store_state(store, ended) == TXN_OPEN)
        return store->txns[ended].within;
    return TXN_NONE;
}

bool store_is_live(const struct store *store, const struct version *version, int me)
{
    const struct snapshot newest = {.commits = store->commits, .txn = me};
    return store_sees(store, &newest, version);
}

struct row *store_find_row(struct store *store, int64_t id)
{
    size_t lo = 0, hi = store->row_count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (store->rows[mid].id < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < store->row_count && store->rows[lo].id == id ? &store->rows[lo] : NULL;
}

struct row *store_add_row(struct store *store, int64_t id, int key, int txn)
{
    assert(store->row_count < ROWS_MAX);
    assert(store->row_count == 0 || store->rows[store->row_count - 1].id < id);
    struct row *row = &store->rows[store->row_count++];
    *row = (struct row){.version = version_of(txn), .id = id, .key = key, .sent = key, .priority = PRIORITY_NONE};
    return row;
}

struct wait *store_add_wait(struct store *store, const struct wait *wait, int txn)
{
    assert(store->wait_count < WAITS_MAX);
    struct wait *added = &store->waits[store->wait_count++];
    *added = *wait;
    added->version = version_of(txn);
    return added;
}

static bool is_over(const struct store *store, const struct version *version, int64_t oldest)
{
    if (store_state(store, version->made_by) == TXN_ABORTED)
        return true;
    int ended = version->ended_by;
    return ended != TXN_NONE && store_state(store, ended) == TXN_COMMITTED &&
           store->txns[store->txns[ended].within].committed_as <= oldest;
}

void store_vacuum_waits(struct store *store, int64_t oldest)
{
    size_t kept = 0;
    for (size_t i = 0; i < store->wait_count; i++)
        if (!is_over(store, &store->waits[i].version, oldest))
            store->waits[kept++] = store->waits[i];
    store->wait_count = kept;
}

static struct lock *find_lock(const struct store *store, int64_t name)
{
    for (size_t i = 0; i < store->lock_count; i++)
        if (store->locks[i].name == name)
            return (struct lock *)&store->locks[i];
    return NULL;
}

bool store_try_lock(struct store *store, int64_t name, int backend, bool session)
{
    struct lock *lock = find_lock(store, name);
    if (lock && lock->backend != backend)
        return false;
    if (!lock) {
        assert(store->lock_count < LOCKS_MAX);
        lock = &store->locks[store->lock_count++];
        *lock = (struct lock){.name = name, .backend = backend};
    }
    lock->of_session += session;
    lock->of_transaction = lock->of_transaction || !session;
    return true;
}

int store_lock_holder(const struct store *store, int64_t name)
{
    const struct lock *lock = find_lock(store, name);
    return lock ? lock->backend : -1;
}

bool store_is_kept(const struct store *store, int64_t name, int backend)
{
    const struct lock *lock = find_lock(store, name);
    return lock && lock->backend == backend && lock->of_session > 0;
}

static void drop_if_free(struct store *store, struct lock *lock)
{
    if (!lock->of_transaction && lock->of_session == 0)
        *lock = store->locks[--store->lock_count];
}

bool store_unlock(struct store *store, int64_t name, int backend)
{
    struct lock *lock = find_lock(store, name);
    if (!lock || lock->backend != backend || lock->of_session == 0)
        return false;
    lock->of_session--;
    drop_if_free(store, lock);
    return true;
}

void store_unlock_transaction(struct store *store, int backend)
{
    for (size_t i = store->lock_count; i-- > 0;) {
        if (store->locks[i].backend != backend)
            continue;
        store->locks[i].of_transaction = false;
        drop_if_free(store, &store->locks[i]);
    }
}

void store_unlock_all(struct store *store, int backend)
{
    for (size_t i = store->lock_count; i-- > 0;)
        if (store->locks[i].backend == backend)
            store->locks[i] = store->locks[--store->lock_count];
}
