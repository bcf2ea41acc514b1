#include "tests/simulation/judge.h"

#include "tests/simulation/hold.h"
#include "tests/simulation/judge_fate.h"
#include "tests/simulation/sink.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#define JOURNAL_MAX 20000
#define HISTORY_MAX 60 /* lines; the last ones */

struct entry {
    instant_us at;
    const char *what;
    int process;
    int64_t id, detail;
};

static struct {
    struct fate fates[ROWS_MAX];
    instant_us last_ack_at[RELAYS_MAX];
    struct entry journal[JOURNAL_MAX];
    size_t journal_count;
} judge;

void judge_clear(void)
{
    judge.journal_count = 0;
    hold_clear();
    memset(judge.fates, 0, sizeof judge.fates);
    memset(judge.last_ack_at, 0, sizeof judge.last_ack_at);
    for (size_t i = 0; i < ROWS_MAX; i++) {
        judge.fates[i].credit = true;
        judge.fates[i].buried_by = judge.fates[i].taken_over_by = TXN_NONE;
    }
}

struct fate *fate_of(const struct row *row)
{
    return &judge.fates[row - sim.store.rows];
}

void judge_note(const char *what, int process, int64_t id, int64_t detail)
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

bool fate_is_dead(const struct fate *fate)
{
    return fate->buried_by != TXN_NONE && store_state(&sim.store, fate->buried_by) == TXN_COMMITTED;
}

bool judge_is_dead(const struct row *row)
{
    return fate_is_dead(fate_of(row));
}

/* No destination can be made of it, or it is too large to be read. */
static bool is_undeliverable(const struct row *row)
{
    bool nowhere = row->sent == KEY_NONE_SIM && strchr(sim.plan.queue.destination, '{');
    return nowhere || (sim.plan.queue.max_event_bytes > 0 && row->bytes > sim.plan.queue.max_event_bytes);
}

void judge_committed(const struct row *row)
{
    struct fate *fate = fate_of(row);
    fate->committed = true;
    sim.totals.events++;
    fate->committed_at = fate->changed_at = sim.now;
    judge_note("committed, due at ms", -1, row->id, row->due_at > 0 ? (row->due_at - PLAN_START) / MS_US : 0);
}

void judge_process_gone(int process)
{
    hold_forget(process);
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
        bool late =
            sim.plan.passes && before->due_at > 0; /* it lets others pass until it is due, and a little longer */
        bool done = late || fate->put_back || (arrival ? fate->arrivals > 0 : fate->acked);
        if (before->key == row->key && fate->committed && !done && !fate_is_dead(fate))
            return before;
    }
    return NULL;
}

void judge_read(int process, const struct row *row, bool paused)
{
    struct fate *fate = fate_of(row);
    fate->read_paused &= ~(1U << process);
    fate->read_paused |= (unsigned)paused << process;
    fate->faults_read[process] = fate->faults;
}

/* That the relay may know of: what it has read before the event was put back counts still. */
static unsigned faults_known(const struct fate *fate, int process)
{
    return fate->put_back && fate->faults_read[process] > fate->faults ? fate->faults_read[process] : fate->faults;
}

void judge_submitted(int process, int64_t id, unsigned attempt, bool joined)
{
    const struct row *row = store_find_row(&sim.store, id);
    struct fate *fate = fate_of(row);
    judge_note("submitted, attempt", process, id, attempt);
    if (!fate->committed)
        judge_violation("G1", row, "event %" PRId64 " is delivered and was never committed", id);
    bool zombie = hold_is_lost_unheard(process, row);
    hold_excuse(row);
    if (fate->read_paused & (1U << process))
        judge_violation("pause", row, "event %" PRId64 " is sent by relay %d, which has claimed it after the pause", id,
                        process);
    if (row->due_at > sim.now)
        judge_violation("not_before", row, "event %" PRId64 " is sent %d ms before its time", id,
                        (int)((row->due_at - sim.now) / MS_US));
    if (!zombie && !hold_has(process, row))
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
    if (attempt > faults_known(fate, process) + 1)
        judge_violation("attempts", row, "event %" PRId64 " is on attempt %u after %u failures of its own", id, attempt,
                        fate->faults);
    fate->credit = fate->credit && zombie;
    sim.totals.deliveries++;
    fate->submits++;
    fate->open[process]++;
    fate->submitted_at[process] = sim.now;
}

/* Something is to be told to it, or it stands still. */
static bool has_not_heard(int process)
{
    return sim.processes[process].wake_at <= sim.now || sim.processes[process].busy_until >= sim.now;
}

void judge_arrived(int process, int64_t id, bool can_end)
{
    const struct row *row = store_find_row(&sim.store, id);
    struct fate *fate = fate_of(row);
    if (can_end && !hold_has(process, row) && !hold_is_lost_unheard(process, row) && !has_not_heard(process))
        judge_violation("G5", row, "event %" PRId64 " arrives from relay %d, whose lease of its key is over", id,
                        process);
    judge_note("arrived", process, id, (int64_t)fate->arrivals);
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
    if (kind == ERROR_LOST_CLAIM || kind == ERROR_ROUTE || (kind == ERROR_UNREACHABLE && verdict == VERDICT_RETRY))
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
    judge_note(verdict == VERDICT_ACKED ? "acked" : verdict_name(verdict), process, id, (int64_t)kind);
    if (verdict == VERDICT_ACKED) {
        fate->acked = true;
        if (!is_behind_another(process, row) && hold_may_settle(process, row))
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
    judge_note(bury ? "made a dead letter" : "deleted", process, row->id, 0);
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
    judge_note("does not leave the table", -1, row->id, alone);
    sim.totals.faults++;
    fate->credit = true;
    fate->acked_to = 0;
    fate->faults += alone;
}

/* It is old by now, and later ones of its key may be on their way. */
void judge_put_back(const struct row *row)
{
    struct fate *fate = fate_of(row);
    judge_note("put back", -1, row->id, 0);
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
    judge_note(closed ? "key closed, attempts" : "key waits, attempts", process, id, attempts);
    if (attempts > (int64_t)faults_known(fate, process) && !is_undeliverable(row))
        judge_violation("attempts", row, "event %" PRId64 " is charged %" PRId64 " attempts for %u failures of its own",
                        id, attempts, fate->faults);
}
