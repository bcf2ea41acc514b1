/* tests/simulation/judge_fate.h -- what the parts of the judge have in common: judge.c, hold.c and judge_end.c. */
#ifndef TESTS_SIMULATION_JUDGE_FATE_H
#define TESTS_SIMULATION_JUDGE_FATE_H

#include "tests/simulation/judge.h"
#include "tests/simulation/world.h"

/* What has become of an event so far. */
struct fate {
    bool committed, acked, credit, put_back;
    instant_us committed_at, arrived_at;
    instant_us changed_at; /* by somebody else than a relay */
    unsigned submits, arrivals;
    unsigned acked_to;         /* a bit a process that has been told so, has to make use of it and lives */
    unsigned read_paused;      /* a bit a process whose last claim of it has found the queue paused */
    unsigned open[RELAYS_MAX]; /* deliveries without a verdict */
    instant_us submitted_at[RELAYS_MAX], failed_at[RELAYS_MAX]; /* last */
    unsigned faults;                                            /* verdicts that may be blamed on the event itself */
    unsigned faults_read[RELAYS_MAX]; /* as many as there were when the relay read it last: it may be put back since */
    bool rejected;
    int buried_by;                     /* the transaction that made it a dead letter, or TXN_NONE */
    int lease_owner[RELAYS_MAX];       /* the backend that the relay's lease of it ends with */
    int64_t ran_out;                   /* the token of the last lease of it that did so */
    int taken_over_by;                 /* the transaction that took over a lease of it which had run out, or TXN_NONE */
    instant_us suspect_at[RELAYS_MAX]; /* when it failed last in a way that may be the destination's fault */
};

struct fate *fate_of(const struct row *row);
bool fate_is_dead(const struct fate *fate);

/* For the history of the event's key, which a violation prints. */
void judge_note(const char *what, int process, int64_t id, int64_t detail);

#endif
