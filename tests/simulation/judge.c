#include "tests/simulation/judge.h"

#include "tests/simulation/server.h"
#include "tests/simulation/sink.h"
#include "tests/simulation/world.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define ZOMBIES_MAX 1024
#define JOURNAL_MAX 20000
#define HISTORY_MAX 60 /* lines; the last ones */
#define LATENCY_MAX_US (1500 * MS_US)
#define EMPTY_CHECK_US (1500 * MS_US) /* from what --until-empty saw last to its end, at most */
#define RESUME_HEARD_US (3 * SECOND_US)

/* What has become of an event so far. */
struct fate {
    bool committed, acked, credit, put_back;
    instant_us committed_at, arrived_at;
    instant_us changed_at; /* by somebody else than a relay */
    unsigned submits, arrivals;
    unsigned acked_to;         /* a bit a process that has been told so, has to make use of it and lives */
    unsigned open[RELAYS_MAX]; /* deliveries without a verdict */
    instant_us submitted_at[RELAYS_MAX], failed_at[RELAYS_MAX]; /* last */
    unsigned faults;                                            /* verdicts that may be blamed on the event itself */
    bool rejected;
    int buried_by;                     /* the transaction that made it a dead letter, or TXN_NONE */
    instant_us suspect_at[RELAYS_MAX]; /* when it failed last in a way that may be the destination's fault */
};

/* A lock that a process has lost and does not know of. */
struct zombie {
    int process, backend;
    int64_t lock;
    instant_us told_at;
};

struct entry {
    instant_us at;
    const char *what;
    int process;
    int64_t id, detail;
};

static struct {
    struct fate fates[ROWS_MAX];
    struct zombie zombies[ZOMBIES_MAX];
    size_t zombie_count;
    instant_us last_ack_at[RELAYS_MAX];
    struct entry journal[JOURNAL_MAX];
    size_t journal_count;
} judge;

void judge_clear(void)
{
    judge.zombie_count = judge.journal_count = 0;
    memset(judge.fates, 0, sizeof judge.fates);
    memset(judge.last_ack_at, 0, sizeof judge.last_ack_at);
    for (size_t i = 0; i < ROWS_MAX; i++) {
        judge.fates[i].credit = true;
        judge.fates[i].buried_by = TXN_NONE;
    }
}

static struct fate *fate_of(const struct row *row)
{
    return &judge.fates[row - sim.store.rows];
}

static void note(const char *what, int process, int64_t id, int64_t detail)
{
    TRACE("  event %" PRId64 " %s relay=%d %" PRId64, id, what, process, detail);
    if (judge.journal_count < JOURNAL_MAX)
        judge.journal[judge.journal_count++] = (struct entry){sim.now, what, process, id, detail};
}

static bool belongs(const struct entry *entry, const struct row *of)
{
    const struct row *row = store_find_row(&sim.store, entry->id);
    return row && (of->key == KEY_NONE_SIM ? row == of : row->key == of->key);
}

static void print_history(const struct row *of)
{
    size_t left = 0;
    for (size_t i = 0; i < judge.journal_count; i++)
        left += belongs(&judge.journal[i], of);
    for (size_t i = 0; i < judge.journal_count; i++) {
        const struct entry *entry = &judge.journal[i];
        if (!belongs(entry, of) || left-- > HISTORY_MAX)
            continue;
        printf("  %10.3f ms  relay %d  event %" PRId64 "  %s %" PRId64 "\n",
               (double)(entry->at - PLAN_START) / (double)MS_US, entry->process, entry->id, entry->what, entry->detail);
    }
}

void judge_violation(const char *guarantee, const struct row *row, const char *format, ...)
{
    if (sim.failed)
        return;
    sim.failed = true;
    printf("seed %" PRIu64 ": %s: ", sim.seed, guarantee);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf(" at %.3f ms\n", (double)(sim.now - PLAN_START) / (double)MS_US);
    plan_print(&sim.plan);
    if (!row)
        return;
    printf("the history of %s%" PRId64 ":\n", row->key == KEY_NONE_SIM ? "event " : "key k",
           row->key == KEY_NONE_SIM ? row->id : row->key);
    print_history(row);
}

static bool is_dead(const struct fate *fate)
{
    return fate->buried_by != TXN_NONE && store_state(&sim.store, fate->buried_by) == TXN_COMMITTED;
}

bool judge_is_dead(const struct row *row)
{
    return is_dead(fate_of(row));
}

/* No destination can be made of it, or it is too large to be read. */
static bool is_undeliverable(const struct row *row)
{
    bool nowhere = row->key == KEY_NONE_SIM && strchr(sim.plan.queue.destination, '{');
    return nowhere || (sim.plan.queue.max_event_bytes > 0 && row->bytes > sim.plan.queue.max_event_bytes);
}

void judge_committed(const struct row *row)
{
    struct fate *fate = fate_of(row);
    fate->committed = true;
    sim.totals.events++;
    fate->committed_at = fate->changed_at = sim.now;
    note("committed", -1, row->id, 0);
}

/* ---- G5 ---- */

static bool holds_lock(int process, const struct row *row)
{
    int holder = store_lock_holder(&sim.store, query_lock_name(row->key, row->id));
    return holder >= 0 && server_backend(holder)->process == process && server_backend(holder)->client;
}

/* It has lost the lock and cannot know it yet. What it sends meanwhile is the fault's doing. */
static bool is_zombie(int process, const struct row *row)
{
    int64_t lock = query_lock_name(row->key, row->id);
    for (size_t i = 0; i < judge.zombie_count; i++) {
        const struct zombie *zombie = &judge.zombies[i];
        if (zombie->process == process && zombie->lock == lock && sim.now < zombie->told_at)
            return true;
    }
    return false;
}

void judge_locks_lost(int backend, int process, bool session)
{
    for (size_t i = 0; i < sim.store.lock_count; i++) {
        const struct lock *lock = &sim.store.locks[i];
        if (lock->backend != backend || (!session && !lock->of_transaction))
            continue;
        /* The session may go on holding it for another key of the same hash. */
        bool gone = session || lock->of_session == 0;
        if (gone && judge.zombie_count < ZOMBIES_MAX)
            judge.zombies[judge.zombie_count++] = (struct zombie){process, backend, lock->name, INSTANT_NEVER};
        for (size_t r = 0; r < sim.store.row_count; r++) {
            const struct row *row = &sim.store.rows[r];
            if (query_lock_name(row->key, row->id) != lock->name)
                continue;
            if (!judge.fates[r].credit)
                note("its lock was lost", process, row->id, 0);
            judge.fates[r].credit = true;
        }
    }
}

void judge_client_told(int backend, instant_us at)
{
    for (size_t i = 0; i < judge.zombie_count; i++)
        if (judge.zombies[i].backend == backend && judge.zombies[i].told_at == INSTANT_NEVER)
            judge.zombies[i].told_at = at;
}

void judge_process_gone(int process)
{
    for (size_t i = judge.zombie_count; i-- > 0;)
        if (judge.zombies[i].process == process)
            judge.zombies[i] = judge.zombies[--judge.zombie_count];
    for (size_t i = 0; i < ROWS_MAX; i++) {
        judge.fates[i].acked_to &= ~(1U << process);
        judge.fates[i].open[process] = 0;
    }
}

/* ---- G2, G3, G4 ---- */

/* The first smaller event of the same key that is still to come, or NULL. */
static const struct row *passed_over(const struct row *row, bool arrival)
{
    if (row->key == KEY_NONE_SIM || !sim.plan.take_turns)
        return NULL;
    for (const struct row *before = sim.store.rows; before < row; before++) {
        const struct fate *fate = fate_of(before);
        bool done = fate->put_back || (arrival ? fate->arrivals > 0 : fate->acked);
        if (before->key == row->key && fate->committed && !done && !is_dead(fate))
            return before;
    }
    return NULL;
}

void judge_submitted(int process, int64_t id, unsigned attempt, bool joined)
{
    const struct row *row = store_find_row(&sim.store, id);
    struct fate *fate = fate_of(row);
    note("submitted, attempt", process, id, attempt);
    if (!fate->committed)
        judge_violation("G1", row, "event %" PRId64 " is delivered and was never committed", id);
    bool zombie = is_zombie(process, row);
    if (!zombie && !holds_lock(process, row))
        judge_violation("G5", row, "relay %d sends event %" PRId64 " without the lock of its key", process, id);
    if (!zombie && !fate->credit)
        judge_violation("G3", row, "event %" PRId64 " is sent again, and nothing excuses it", id);
    if (!zombie && fate->acked_to & (1U << process))
        judge_violation("G3", row, "event %" PRId64 " is sent again by relay %d, which knows that it was acked", id,
                        process);
    const struct row *before = sim.plan.keeps_order ? NULL : passed_over(row, false);
    bool along = joined && before && fate_of(before)->open[process] > 0;
    if (before && !along && fate->submits == 0)
        judge_violation("G2", row, "event %" PRId64 " is sent before event %" PRId64 " is acked", id, before->id);
    if (attempt > fate->faults + 1)
        judge_violation("attempts", row, "event %" PRId64 " is on attempt %u after %u failures of its own", id, attempt,
                        fate->faults);
    fate->credit = fate->credit && zombie;
    sim.totals.deliveries++;
    fate->submits++;
    fate->open[process]++;
    fate->submitted_at[process] = sim.now;
}

void judge_arrived(int process, int64_t id)
{
    const struct row *row = store_find_row(&sim.store, id);
    struct fate *fate = fate_of(row);
    note("arrived", process, id, (int64_t)fate->arrivals);
    const struct row *before = fate->arrivals == 0 ? passed_over(row, true) : NULL;
    if (before)
        judge_violation("G2", row, "event %" PRId64 " arrives before event %" PRId64, id, before->id);
    sim.totals.repeated += fate->arrivals > 0;
    if (fate->arrivals++ == 0)
        fate->arrived_at = sim.now;
}

/* May this failure count as an attempt? What looks like an outage counts when the event has failed so before, and its
 * destination has taken others since. */
static bool may_be_blamed(int process, struct fate *fate, enum verdict verdict, enum error_kind kind)
{
    if (verdict == VERDICT_REJECTED)
        return true;
    if (kind == ERROR_ROUTE || (kind == ERROR_UNREACHABLE && verdict == VERDICT_RETRY))
        return false;
    if (kind != ERROR_UNREACHABLE && kind != ERROR_OVERLOADED && kind != ERROR_TIMEOUT)
        return true;
    bool again = fate->suspect_at[process] > 0 && judge.last_ack_at[process] > fate->suspect_at[process];
    fate->suspect_at[process] = sim.now;
    return again;
}

/* A relay settles what is acked of a key up to the first event that is not: what it hears of those behind it is of no
 * use to it. */
static bool is_behind_another(int process, const struct row *row)
{
    instant_us since = fate_of(row)->submitted_at[process];
    for (const struct row *before = sim.store.rows; row->key != KEY_NONE_SIM && before < row; before++) {
        const struct fate *fate = fate_of(before);
        if (before->key == row->key && (fate->open[process] > 0 || fate->failed_at[process] >= since))
            return true;
    }
    return false;
}

static void forget_acks_behind(int process, const struct row *row)
{
    for (const struct row *later = row + 1; later < sim.store.rows + sim.store.row_count; later++)
        if (later->key == row->key && row->key != KEY_NONE_SIM)
            fate_of(later)->acked_to &= ~(1U << process);
}

void judge_verdict(int process, int64_t id, enum verdict verdict, enum error_kind kind)
{
    const struct row *row = store_find_row(&sim.store, id);
    struct fate *fate = fate_of(row);
    fate->open[process] -= fate->open[process] > 0;
    note(verdict == VERDICT_ACKED ? "acked" : verdict_name(verdict), process, id, (int64_t)kind);
    if (verdict == VERDICT_ACKED) {
        fate->acked = true;
        if (!is_behind_another(process, row))
            fate->acked_to |= 1U << process;
        judge.last_ack_at[process] = sim.now;
        return;
    }
    fate->failed_at[process] = sim.now;
    forget_acks_behind(process, row);
    sim.totals.faults++;
    fate->credit = true;
    fate->rejected = fate->rejected || verdict == VERDICT_REJECTED;
    fate->faults += may_be_blamed(process, fate, verdict, kind);
}

/* ---- G1 ---- */

void judge_deleted(int process, const struct row *row, bool bury)
{
    struct fate *fate = fate_of(row);
    note(bury ? "made a dead letter" : "deleted", process, row->id, 0);
    if (!bury && !fate->acked)
        judge_violation("G1", row, "event %" PRId64 " is deleted and was not acked", row->id);
    if (!bury)
        return;
    fate->buried_by = row->version.ended_by;
    /* One that was put back may meet the settlement that buried it, when nobody knows whether that was committed. */
    bool allowed =
        is_undeliverable(row) || fate->put_back || fate->rejected || fate->faults >= sim.plan.queue.retry_attempts;
    if (!allowed || sim.plan.queue.on_exhausted == ON_EXHAUSTED_PARK)
        judge_violation("G1", row, "event %" PRId64 " becomes a dead letter after %u failures of its own", row->id,
                        fate->faults);
}

/* What was to be deleted together with it is no excuse for the others. Only a refusal of it alone counts as a failure
 * of its own. */
void judge_refused(const struct row *row, bool alone)
{
    struct fate *fate = fate_of(row);
    note("does not leave the table", -1, row->id, alone);
    sim.totals.faults++;
    fate->credit = true;
    fate->acked_to = 0;
    fate->faults += alone;
}

/* It is old by now, and later ones of its key may be on their way. */
void judge_put_back(const struct row *row)
{
    struct fate *fate = fate_of(row);
    note("put back", -1, row->id, 0);
    fate->buried_by = TXN_NONE;
    fate->credit = fate->put_back = true;
    fate->acked_to = 0;
    fate->rejected = false;
    fate->faults = 0;
    fate->changed_at = sim.now;
}

void judge_opened(const struct wait *wait)
{
    for (size_t i = 0; i < sim.store.row_count; i++) {
        const struct row *row = &sim.store.rows[i];
        if (wait->key == KEY_NONE_SIM ? row->id == wait->head : row->key == wait->key)
            judge.fates[i].changed_at = sim.now;
    }
}

void judge_parked(int process, int64_t id, int64_t attempts, bool closed)
{
    const struct row *row = store_find_row(&sim.store, id);
    const struct fate *fate = fate_of(row);
    note(closed ? "key closed, attempts" : "key waits, attempts", process, id, attempts);
    if (attempts > (int64_t)fate->faults && !is_undeliverable(row))
        judge_violation("attempts", row, "event %" PRId64 " is charged %" PRId64 " attempts for %u failures of its own",
                        id, attempts, fate->faults);
}

/* ---- G6 ---- */

static const struct row *first_left(void)
{
    const struct store *store = &sim.store;
    for (size_t i = 0; i < store->row_count; i++)
        if (judge.fates[i].committed && store_is_live(store, &store->rows[i].version, TXN_NONE))
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
 * claim's transaction ends. */
static bool may_take_long(const struct row *row)
{
    const struct plan *plan = &sim.plan;
    bool behind = plan->long_txn > 0 && plan->id_step_max > 2;
    bool no_room = row->key == KEY_NONE_SIM && plan->slow_key >= 0;
    return behind || no_room || row->key == plan->slow_key;
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
        const struct fate *fate = &judge.fates[i];
        if (fate->committed && sim.now - fate->changed_at > EMPTY_CHECK_US && !is_closed(row) &&
            store_is_live(&sim.store, &row->version, TXN_NONE))
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

static void check_latency(const struct row *row, const struct fate *fate)
{
    instant_us from = fate->committed_at > PLAN_START + SECOND_US / 2 ? fate->committed_at : PLAN_START + SECOND_US / 2;
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
        const struct fate *fate = &judge.fates[i];
        const struct row *row = &sim.store.rows[i];
        if (drained && fate->committed && fate->arrivals == 0 && !is_dead(fate))
            judge_violation("G1", row, "event %" PRId64 " is gone and never arrived", row->id);
        if (sim.plan.faultless)
            check_latency(row, fate);
    }
}
