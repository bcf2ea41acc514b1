#include "tests/simulation/hold.h"

#include "tests/simulation/judge_fate.h"
#include "tests/simulation/server.h"

#define ZOMBIES_MAX 1024

/* A lock that a process has lost and does not know of; or with leases, a backend. */
struct zombie {
    int process, backend, pid;
    int64_t lock;
    instant_us told_at;
};

static struct {
    struct zombie zombies[ZOMBIES_MAX];
    size_t zombie_count;
} hold;

void hold_clear(void)
{
    hold.zombie_count = 0;
}

void hold_forget(int process)
{
    for (size_t i = hold.zombie_count; i-- > 0;)
        if (hold.zombies[i].process == process)
            hold.zombies[i] = hold.zombies[--hold.zombie_count];
}

static int holder_of(const struct row *row)
{
    if (sim.plan.lock_rows)
        return store_is_locked(&sim.store, &row->version) ? server_backend_of(row->version.locked_by) : -1;
    return store_lock_holder(&sim.store, query_lock_name(row->key, row->id));
}

static bool is_of(const struct wait *wait, int key, int64_t id)
{
    return key == KEY_NONE_SIM ? wait->key == KEY_NONE_SIM && wait->head == id : wait->key == key;
}

/* As transaction `me` finds it; NULL: the key is not leased. */
static const struct wait *lease_of(int key, int64_t id, int me)
{
    for (size_t i = sim.store.wait_count; i-- > 0;) {
        const struct wait *wait = &sim.store.waits[i];
        if (is_of(wait, key, id) && store_is_live(&sim.store, &wait->version, me))
            return wait->token != 0 ? wait : NULL;
    }
    return NULL;
}

bool hold_may_settle(int process, const struct row *row)
{
    const struct wait *lease = sim.plan.leases ? lease_of(row->key, row->id, TXN_NONE) : NULL;
    if (!sim.plan.leases)
        return true;
    /* Somebody may just be taking it over. */
    return lease && lease->process == process && lease->taken_at <= fate_of(row)->submitted_at[process] &&
           store_contested(&sim.store, &lease->version, TXN_NONE) == TXN_NONE;
}

bool hold_has(int process, const struct row *row)
{
    if (sim.plan.leases) {
        const struct wait *lease = lease_of(row->key, row->id, TXN_NONE);
        return lease && lease->process == process && lease->next_at > sim.now;
    }
    int holder = holder_of(row);
    return holder >= 0 && server_backend(holder)->process == process && server_backend(holder)->client;
}

/* It has lost the lock and cannot know it yet. What it sends meanwhile is the fault's doing. */
bool hold_is_lost_unheard(int process, const struct row *row)
{
    int64_t lock = query_lock_name(row->key, row->id);
    for (size_t i = 0; i < hold.zombie_count; i++) {
        const struct zombie *zombie = &hold.zombies[i];
        bool same = sim.plan.leases ? zombie->pid == fate_of(row)->lease_owner[process] : zombie->lock == lock;
        if (zombie->process == process && same && sim.now < zombie->told_at)
            return true;
    }
    return false;
}

static void lose(int process, int backend, int64_t lock)
{
    if (hold.zombie_count < ZOMBIES_MAX)
        hold.zombies[hold.zombie_count++] =
            (struct zombie){process, backend, server_backend(backend)->pid, lock, INSTANT_NEVER};
}

static void excuse(int process, const struct row *row)
{
    if (!fate_of(row)->credit)
        judge_note("its lock was lost", process, row->id, 0);
    fate_of(row)->credit = true;
}

void judge_rows_lost(int backend, int process, int txn)
{
    for (size_t i = 0; sim.plan.lock_rows && i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        if (row->version.locked_by != txn)
            continue;
        lose(process, backend, query_lock_name(row->key, row->id));
        excuse(process, row);
    }
}

void judge_locks_lost(int backend, int process, bool session)
{
    if (sim.plan.leases && session)
        lose(process, backend, 0);
    if (sim.plan.leases)
        return;
    for (size_t i = 0; i < sim.store.lock_count; i++) {
        const struct lock *lock = &sim.store.locks[i];
        if (lock->backend != backend || (!session && !lock->of_transaction))
            continue;
        /* The session may go on holding it for another key of the same hash. */
        bool gone = session || lock->of_session == 0;
        if (gone)
            lose(process, backend, lock->name);
        for (size_t r = 0; r < sim.store.row_count; r++) {
            const struct row *row = &sim.store.rows[r];
            if (query_lock_name(row->key, row->id) == lock->name)
                excuse(process, row);
        }
    }
}

void judge_client_told(int backend, instant_us at)
{
    for (size_t i = 0; i < hold.zombie_count; i++)
        if (hold.zombies[i].backend == backend && hold.zombies[i].told_at == INSTANT_NEVER)
            hold.zombies[i].told_at = at;
}

/* ---- leases ---- */

static void note_owner(const struct wait *lease)
{
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        if (is_of(lease, row->key, row->id))
            fate_of(row)->lease_owner[lease->process] = lease->owner;
    }
}

/* Others have heard too late of acks by now. So has who takes over from himself: his settlement may have been under way
 * for so long that its term was over when his next claim read what it was about. */
static void forget_acks(const struct wait *lease, bool over)
{
    for (size_t i = 0; i < sim.store.row_count; i++)
        if (is_of(lease, sim.store.rows[i].key, sim.store.rows[i].id)) {
            struct fate *fate = fate_of(&sim.store.rows[i]);
            bool read_over = fate->taken_over_by == lease->version.made_by;
            fate->acked_to &= over || read_over ? 0 : 1U << lease->process;
        }
}

void hold_leased(int backend, const struct wait *lease, bool over)
{
    TRACE("  lease of %s%d for relay %d", lease->key == KEY_NONE_SIM ? "event " : "k",
          lease->key == KEY_NONE_SIM ? (int)lease->head : lease->key, lease->process);
    if (store_lock_holder(&sim.store, query_lock_name(lease->key, lease->head)) != backend)
        judge_violation("G5", NULL, "relay %d leases a key without its lock", lease->process);
    forget_acks(lease, over);
    note_owner(lease);
}

void hold_renewed(const struct wait *lease)
{
    note_owner(lease);
}

/* A failed attempt, and what was answered to the one before is nobody's any more. */
void hold_taken_over(const struct wait *lease, int txn)
{
    const struct row *head = store_find_row(&sim.store, lease->head);
    if (sim.plan.faultless)
        judge_violation("leases", head, "a lease of relay %d runs out and nothing ever failed", lease->process);
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        if (!is_of(lease, row->key, row->id))
            continue;
        hold_excuse(row);
        fate_of(row)->taken_over_by = txn;
    }
    if (!head || fate_of(head)->ran_out == lease->token)
        return;
    judge_note("its lease ran out", lease->process, lease->head, 0);
    sim.totals.faults++;
    fate_of(head)->ran_out = lease->token;
    fate_of(head)->faults += lease->head == lease->taken_id;
}

void hold_settles(const struct backend *backend, int key, int64_t id)
{
    if (!sim.plan.leases)
        return;
    const struct wait *lease = NULL;
    for (size_t i = sim.store.wait_count; i-- > 0 && !lease;)
        if (is_of(&sim.store.waits[i], key, id) && store_is_live(&sim.store, &sim.store.waits[i].version, backend->txn))
            lease = &sim.store.waits[i];
    bool begun = lease && store_is_mine(&sim.store, lease->version.made_by, backend->txn);
    bool ours =
        lease && lease->token != 0 && lease->process == backend->process && lease->version.locked_by == backend->txn;
    if (!begun && !ours)
        judge_violation("leases", store_find_row(&sim.store, id), "relay %d settles what it has no lease of",
                        backend->process);
}

void hold_excuse(const struct row *row)
{
    struct fate *fate = fate_of(row);
    if (fate->taken_over_by == TXN_NONE || store_state(&sim.store, fate->taken_over_by) != TXN_COMMITTED)
        return;
    fate->credit = true;
    fate->taken_over_by = TXN_NONE;
}
