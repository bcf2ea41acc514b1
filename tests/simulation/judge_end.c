/* G6: everything arrives, in the time that there is for it; and G1 at the end of a run. */
#include "tests/simulation/judge_fate.h"
#include "tests/simulation/server.h"

#include <inttypes.h>

#define LATENCY_MAX_US (1500 * MS_US)
#define EMPTY_CHECK_US (1500 * MS_US) /* from what --until-empty saw last to its end, at most */
#define RESUME_HEARD_US (3 * SECOND_US)

static const struct row *first_left(void)
{
    const struct store *store = &sim.store;
    for (size_t i = 0; i < store->row_count; i++)
        if (fate_of(&store->rows[i])->committed && store_is_live(store, &store->rows[i].version, TXN_NONE))
            return &store->rows[i];
    return NULL;
}

bool judge_is_drained(void)
{
    const struct store *store = &sim.store;
    if (first_left())
        return false;
    for (size_t i = 0; i < store->wait_count; i++)
        if (store_is_live(store, &store->waits[i].version, TXN_NONE))
            return false;
    return true;
}

/* Two things take their time by design: an event that appears late, behind ids that have leapt ahead, waits until the
 * transactions of that time have ended; and one without a key, locked by a claim that had no room for it, until that
 * claim's transaction ends. Where nothing is ordered and locks can be kept, that is soon. */
static bool may_take_long(const struct row *row)
{
    const struct plan *plan = &sim.plan;
    bool behind = plan->long_txn > 0 && plan->id_step_max > 2;
    bool no_room = row->sent == KEY_NONE_SIM || (plan->unordered && (plan->lock_rows || plan->pooled));
    return behind || (plan->slow_key >= 0 && (no_room || row->sent == plan->slow_key));
}

/* Somebody has to open its key first. */
static bool is_closed(const struct row *row)
{
    const struct store *store = &sim.store;
    for (size_t i = 0; i < store->wait_count; i++) {
        const struct wait *wait = &store->waits[i];
        bool same =
            row->key == KEY_NONE_SIM ? wait->key == KEY_NONE_SIM && wait->head == row->id : wait->key == row->key;
        if (same && wait->next_at == AT_INFINITY && store_is_live(store, &wait->version, TXN_NONE))
            return true;
    }
    return false;
}

void judge_empty(int process)
{
    if (sim.now < sim.paused_until + RESUME_HEARD_US)
        return; /* there is nothing to do in a queue that is paused */
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        const struct fate *fate = fate_of(&sim.store.rows[i]);
        if (fate->committed && sim.now - fate->changed_at > EMPTY_CHECK_US && !is_closed(row) &&
            row->due_at + EMPTY_CHECK_US < sim.now && store_is_live(&sim.store, &row->version, TXN_NONE))
            judge_violation("until empty", row, "relay %d has ended and event %" PRId64 " is left", process, row->id);
    }
}

void judge_at_rest(int process)
{
    for (size_t i = 0; i < sim.store.lock_count; i++) {
        const struct lock *lock = &sim.store.locks[i];
        const struct backend *backend = server_backend(lock->backend);
        if (lock->of_session > 0 && backend->process == process && backend->client)
            judge_violation("locks", NULL, "relay %d has ended and its session keeps a lock", process);
    }
}

/* With what it has to wait for. */
static instant_us due_at(const struct row *of)
{
    instant_us at = of->due_at;
    const struct row *end = sim.plan.take_turns ? of : sim.store.rows + sim.store.row_count;
    for (const struct row *row = sim.store.rows; sim.plan.holds && row < end; row++)
        if (row->key == of->key && row->key != KEY_NONE_SIM && row->due_at > at)
            at = row->due_at;
    return at;
}

static void check_latency(const struct row *row, const struct fate *fate)
{
    instant_us from = fate->committed_at > PLAN_START + SECOND_US / 2 ? fate->committed_at : PLAN_START + SECOND_US / 2;
    if (due_at(row) > from)
        from = due_at(row);
    if (!may_take_long(row) && fate->arrivals > 0 && fate->arrived_at - from > LATENCY_MAX_US)
        judge_violation("G6", row, "event %" PRId64 " took %d ms to arrive and nothing ever failed", row->id,
                        (int)((fate->arrived_at - fate->committed_at) / MS_US));
}

void judge_end(bool drained)
{
    if (!drained) {
        const struct row *row = first_left();
        judge_violation("G6", row, "event %" PRId64 " is still there %d s after the last fault", row ? row->id : 0,
                        (int)((sim.now - sim.plan.calm_at) / SECOND_US));
    }
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct fate *fate = fate_of(&sim.store.rows[i]);
        const struct row *row = &sim.store.rows[i];
        if (drained && fate->committed && fate->arrivals == 0 && !fate_is_dead(fate))
            judge_violation("G1", row, "event %" PRId64 " is gone and never arrived", row->id);
        if (sim.plan.faultless)
            check_latency(row, fate);
    }
}
