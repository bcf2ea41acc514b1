/* tests/simulation/world.h -- one run: virtual time, its one source of randomness, and everybody who acts.
 *
 * A run is a single thread that always lets whoever is next in virtual time take one step, so a seed decides
 * everything. The modules that replace something of the relay's (relay/postgres/db.h, relay/base/clock.h, a sink) have
 * no parameter to find their run by, hence the one global. */
#ifndef TESTS_SIMULATION_WORLD_H
#define TESTS_SIMULATION_WORLD_H

#include "relay/base/arena.h"
#include "relay/base/log.h"
#include "relay/relay.h"
#include "tests/simulation/plan.h"
#include "tests/simulation/store.h"

#define RELAYS_MAX 3

/* A process that runs the relay's loop. */
struct process {
    struct relay *relay;   /* NULL: not running */
    instant_us wake_at;    /* of its next turn; of its start when it is not running */
    instant_us busy_until; /* not before */
    int signals;           /* sent and not taken */
    int stop_signals;      /* that it got */
    unsigned life;         /* how often it was started */
};

/* What all runs of this process together have seen. */
struct totals {
    uint64_t runs, events, deliveries, repeated, statements, turns;
    uint64_t faults; /* connections that broke, statements that failed, relays that died, verdicts that were no ack */
};

struct world {
    uint64_t seed;
    struct rng rng;
    instant_us now;
    bool trace;
    bool failed;             /* the judge has found a violation: the run ends */
    bool ending;             /* everything is delivered */
    instant_us paused_until; /* the queue */
    struct arena *arena;
    struct log log;
    struct plan plan;
    struct store store;
    struct process processes[RELAYS_MAX];
    int current; /* whose code is running; -1: nobody's */
    uint64_t steps, turns;
    struct totals totals;
};

extern struct world sim;

/* Runs one seed. False when a guarantee was broken: the judge has said so on stdout. */
bool world_run(uint64_t seed, bool trace);

/* Nothing fails any more. */
static inline bool sim_is_calm(void)
{
    return sim.ending || sim.now >= sim.plan.calm_at;
}

static inline int64_t sim_draw(int64_t low, int64_t high)
{
    return low + (int64_t)(rng_next(&sim.rng) % (uint64_t)(high - low + 1));
}

static inline bool sim_chance(unsigned of_thousand)
{
    return of_thousand > 0 && rng_next(&sim.rng) % 1000 < of_thousand;
}

/* The same, and never in the calm. */
static inline bool sim_fails(unsigned of_thousand)
{
    return of_thousand > 0 && !sim_is_calm() && sim_chance(of_thousand);
}

/* Something arrives for this process at that time. */
static inline void sim_wake(int process, instant_us at)
{
    sim.processes[process].wake_at = instant_min(sim.processes[process].wake_at, at);
}

void sim_trace(const char *format, ...) PRINTF_LIKE(1, 2);
#define TRACE(...) ((void)(sim.trace && (sim_trace(__VA_ARGS__), 0)))

/* Process control, for the faults. */
void process_kill(int process); /* as by SIGKILL; it is started again some time later */
void process_stop(int process); /* as by SIGTERM */
void process_freeze(int process, int64_t for_us);

#endif
