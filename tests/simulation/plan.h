/* tests/simulation/plan.h -- what one seed stands for: how large the run is, how the queue is configured, what fails.
 */
#ifndef TESTS_SIMULATION_PLAN_H
#define TESTS_SIMULATION_PLAN_H

#include "relay/base/backoff.h"
#include "relay/base/clock.h"
#include "relay/config/config.h"

/* How often something fails, of a thousand times. */
struct plan_rates {
    /* the database */
    unsigned sql_error, backend_killed, connection_cut, connect_fails, statement_slow;
    /* the sink */
    unsigned refused, rejected, unknown, late, overloaded, unreachable, no_route, full;
};

/* How often something happens in a run. */
struct plan_counts {
    unsigned kills, freezes, stops, restarts, outages, put_backs, pauses, terminations;
};

struct plan {
    int relays, keys, events;
    bool take_turns; /* producers of one key */
    bool keeps_order, takes_runs, probes;
    bool rests;  /* the table has the trigger that wakes relays */
    bool pooled; /* the relays believe that a pooler shares their sessions */
    bool unordered, lock_rows, priority;
    bool leases;
    bool calls_back;    /* what is under way can be called back, as a command can be killed */
    bool holds, passes; /* events may be delayed, and the later ones of their key wait for them, or do not */
    unsigned delayed;   /* per mille */
    bool sequence;
    int lock_names;                                    /* keys share this many locks; 0: each has its own */
    int64_t id_step_max;                               /* ids leap by up to this */
    unsigned keyless, large, poison, aborts, long_txn; /* per mille */
    unsigned stuck, stays;                             /* rows that cannot be deleted, or that a trigger keeps */
    unsigned moves;                                    /* rows that are updated between read and settlement */
    bool places;                                       /* settlements may name where rows were read */
    bool until_empty;                                  /* relays end when nothing is left, and are started again */
    bool backlog;                                      /* events are there before the relays */
    instant_us produce_until, calm_at;                 /* from calm_at on nothing fails any more */
    bool faultless;                                    /* nothing ever fails: events have to arrive quickly */
    int slow_key;                                      /* its deliveries take seconds; -1: none */
    struct plan_rates rates;
    struct plan_counts counts;
    struct sink_config sink;
    struct queue_config queue;
    struct config config;
};

#define PLAN_START (10 * SECOND_US)

void plan_make(struct plan *plan, struct rng *rng, uint64_t seed);
void plan_print(const struct plan *plan);

#endif
