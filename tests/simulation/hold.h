/* tests/simulation/hold.h -- who may send an event: G5. */
#ifndef TESTS_SIMULATION_HOLD_H
#define TESTS_SIMULATION_HOLD_H

#include "tests/simulation/server.h"

void hold_clear(void);
void hold_forget(int process); /* nobody is left who would have to be told */

/* It has what keeps others from the event. */
bool hold_has(int process, const struct row *row);

/* It has lost that and cannot know it yet. What it sends meanwhile is the fault's doing. */
bool hold_is_lost_unheard(int process, const struct row *row);

/* What it is told of the event is of use to it: nobody has taken over the lease under which it was sent. */
bool hold_may_settle(int process, const struct row *row);

/* ---- leases ---- */

/* A statement of this backend has written it; `over`: in the place of one that has run out. */
void hold_leased(int backend, const struct wait *lease, bool over);
void hold_renewed(const struct wait *lease);
/* This transaction has found that it has run out, and is about to take it over. */
void hold_taken_over(const struct wait *lease, int txn);

/* Some of the key, or of the event without one, is settled: whose lease it is has to be certain. */
void hold_settles(const struct backend *backend, int key, int64_t id);

/* It is about to be sent. Where a lease of it has run out and was taken over, that is an excuse, once. */
void hold_excuse(const struct row *row);

#endif
