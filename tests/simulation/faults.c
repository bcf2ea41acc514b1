#include "tests/simulation/faults.h"

#include "tests/simulation/producer.h"
#include "tests/simulation/server.h"
#include "tests/simulation/sink.h"
#include "tests/simulation/world.h"

#define FAULTS_MAX 16
#define OPEN_AGAIN_US (500 * MS_US)

enum fault { FAULT_KILL, FAULT_FREEZE, FAULT_STOP, FAULT_RESTART, FAULT_OUTAGE, OPERATOR };

static struct {
    struct {
        instant_us at;
        enum fault fault;
    } due[FAULTS_MAX];
    int count;
} faults;

static void add(enum fault fault, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        faults.due[faults.count].at = sim_draw(PLAN_START, sim.plan.calm_at);
        faults.due[faults.count++].fault = fault;
    }
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
    if (sim.plan.queue.on_exhausted == ON_EXHAUSTED_PARK) {
        faults.due[faults.count].at = sim.plan.calm_at + OPEN_AGAIN_US;
        faults.due[faults.count++].fault = OPERATOR;
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

/* sql/dead/closed_retry.sql, in a transaction of its own. A key that a relay is just writing about has to wait for the
 * next time. */
static void open_closed_keys(void)
{
    int txn = store_begin(&sim.store);
    size_t count = sim.store.wait_count;
    for (size_t i = 0; i < count; i++) {
        struct wait *wait = &sim.store.waits[i];
        if (wait->next_at != AT_INFINITY || !store_is_live(&sim.store, &wait->version, txn) ||
            store_contested(&sim.store, &wait->version, txn) != TXN_NONE)
            continue;
        wait->version.ended_by = txn;
        struct wait open = *wait;
        open.next_at = sim.now;
        open.attempts = 0;
        store_add_wait(&sim.store, &open, txn);
    }
    store_commit(&sim.store, txn);
}

void faults_step(void)
{
    int next = next_fault();
    enum fault fault = faults.due[next].fault;
    int process = (int)sim_draw(0, sim.plan.relays - 1);
    TRACE("fault %d", (int)fault);
    if (fault == OPERATOR)
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
    case OPERATOR:
        open_closed_keys();
        break;
    }
}
