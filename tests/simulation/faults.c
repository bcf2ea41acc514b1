#include "tests/simulation/faults.h"

#include "tests/simulation/judge.h"
#include "tests/simulation/producer.h"
#include "tests/simulation/server.h"
#include "tests/simulation/sink.h"
#include "tests/simulation/world.h"

#include <assert.h>

#define FAULTS_MAX 32
#define OPEN_AGAIN_US (500 * MS_US)

enum fault {
    FAULT_KILL,
    FAULT_FREEZE,
    FAULT_STOP,
    FAULT_RESTART,
    FAULT_OUTAGE,
    PUT_BACK,
    PAUSE,
    RESUME,
    FAULT_TERMINATE,
    OPEN_KEYS
};

static struct {
    struct {
        instant_us at;
        enum fault fault;
    } due[FAULTS_MAX];
    int count;
} faults;

static void add_at(enum fault fault, instant_us at)
{
    assert(faults.count < FAULTS_MAX);
    faults.due[faults.count].at = at;
    faults.due[faults.count++].fault = fault;
}

static void add(enum fault fault, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        add_at(fault, sim_draw(PLAN_START, sim.plan.calm_at));
}

void faults_clear(void)
{
    const struct plan_counts *counts = &sim.plan.counts;
    faults.count = 0;
    if (sim.ending)
        return;
    add(FAULT_KILL, counts->kills);
    add(FAULT_FREEZE, counts->freezes);
    add(FAULT_STOP, counts->stops);
    add(FAULT_RESTART, counts->restarts);
    add(FAULT_OUTAGE, counts->outages);
    add(PUT_BACK, counts->put_backs);
    add(PAUSE, counts->pauses);
    add(FAULT_TERMINATE, counts->terminations);
    if (sim.plan.queue.on_exhausted == ON_EXHAUSTED_PARK ||
        sim.plan.stuck + sim.plan.stays + sim.plan.rates.sql_error > 0) {
        faults.due[faults.count].at = sim.plan.calm_at + OPEN_AGAIN_US;
        faults.due[faults.count++].fault = OPEN_KEYS;
    }
}

static int next_fault(void)
{
    int next = -1;
    for (int i = 0; i < faults.count; i++)
        if (next < 0 || faults.due[i].at < faults.due[next].at)
            next = i;
    return next;
}

instant_us faults_next(void)
{
    int next = next_fault();
    return next < 0 ? INSTANT_NEVER : faults.due[next].at;
}

/* The trigger of a transaction that has just committed. */
static void notify(void)
{
    if (server_somebody_rests())
        server_notify(true);
}

/* sql/commands/closed_retry.sql, in a transaction of its own. A key that a relay is just writing about has to wait for
 * the next time. */
static void open_closed_keys(void)
{
    int txn = store_begin(&sim.store);
    size_t count = sim.store.wait_count;
    bool opened = false;
    for (size_t i = 0; i < count; i++) {
        struct wait *wait = &sim.store.waits[i];
        if (wait->next_at != AT_INFINITY || !store_is_live(&sim.store, &wait->version, txn) ||
            store_contested(&sim.store, &wait->version, txn) != TXN_NONE)
            continue;
        judge_opened(wait);
        wait->version.ended_by = txn;
        struct wait open = *wait;
        open.next_at = sim.now;
        open.attempts = 0;
        store_add_wait(&sim.store, &open, txn);
        opened = true;
    }
    store_commit(&sim.store, txn);
    if (opened)
        notify();
}

static struct wait *find_entry(int key, int64_t id)
{
    for (size_t i = sim.store.wait_count; i-- > 0;) {
        struct wait *wait = &sim.store.waits[i];
        bool same = key == KEY_NONE_SIM ? wait->key == KEY_NONE_SIM && wait->head == id : wait->key == key;
        if (same && (store_is_live(&sim.store, &wait->version, TXN_NONE) ||
                     store_contested(&sim.store, &wait->version, TXN_NONE) != TXN_NONE))
            return wait;
    }
    return NULL;
}

/* sql/commands/dead_retry.sql for one event, in a transaction of its own: the row is back under its old id, and the
 * key's entry points at it. */
static void put_back(struct row *row)
{
    struct wait *entry = find_entry(row->key, row->id);
    if (entry && store_contested(&sim.store, &entry->version, TXN_NONE) != TXN_NONE)
        return; /* it would wait; another time */
    int txn = store_begin(&sim.store);
    struct wait wait = {.key = row->key, .head = row->id, .next_at = sim.now};
    if (entry) {
        judge_opened(entry);
        if (entry->token != 0)
            wait = *entry; /* whoever has it keeps it */
        if (row->id == entry->head)
            wait.attempts = 0; /* it begins anew */
        wait.head = entry->head < row->id ? entry->head : row->id;
        entry->version.ended_by = txn;
    }
    store_add_wait(&sim.store, &wait, txn);
    row->version = version_of(txn);
    store_commit(&sim.store, txn);
    notify();
    judge_put_back(row);
}

static void put_back_some(void)
{
    for (size_t i = 0; i < sim.store.row_count; i++)
        if (judge_is_dead(&sim.store.rows[i]) && sim_chance(600))
            put_back(&sim.store.rows[i]);
}

void faults_step(void)
{
    int next = next_fault();
    enum fault fault = faults.due[next].fault;
    int process = (int)sim_draw(0, sim.plan.relays - 1);
    TRACE("fault %d", (int)fault);
    if (fault == OPEN_KEYS)
        faults.due[next].at += OPEN_AGAIN_US;
    else
        faults.due[next] = faults.due[--faults.count];
    switch (fault) {
    case FAULT_KILL:
        process_kill(process);
        break;
    case FAULT_FREEZE:
        process_freeze(process, sim_draw(5, 600) * MS_US);
        break;
    case FAULT_STOP:
        process_stop(process);
        break;
    case FAULT_RESTART:
        producers_abort();
        server_restart(sim_draw(1, 400) * MS_US);
        break;
    case FAULT_OUTAGE:
        network_outage(sim_draw(10, 800) * MS_US, sim_chance(500));
        break;
    case PUT_BACK:
        put_back_some();
        break;
    case PAUSE:
        sim.paused_until = sim.now + sim_draw(100, 2000) * MS_US;
        add_at(RESUME, sim.paused_until);
        break;
    case FAULT_TERMINATE:
        server_terminate(sim_chance(500));
        break;
    case RESUME:
        notify();
        break;
    case OPEN_KEYS:
        open_closed_keys();
        break;
    }
}
