/* relay/queue/lane_life.h -- the states of a lane, the ways in which its key is held, and who moves it from one to
 * another.
 *
 * lane_move(), lane_hold() and batch_hold() make the moves. Their tables are in lane_life.c; docs/architecture.md shows
 * them. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

enum lane_state {
    LANE_OPEN,     /* events to send or in flight */
    LANE_STOPPED,  /* nothing more is sent; events may be in flight */
    LANE_BLOCKED,  /* nothing in flight; it is settled later, because another session holds its row: see blocked.h */
    LANE_FINISHED, /* nothing in flight; what happened waits to be settled */
    LANE_SETTLING, /* its settlement is on the way */
    LANE_SETTLED,  /* nothing is left to do */
    LANE_STATES
};

/* How a key is held now. How it may be held while its events are delivered is its claim's: see holding.h. A batch is
 * held as a whole; its lanes may differ by what is on its way. */
enum hold {
    HOLD_TRANSACTION, /* the claim's transaction has the lock */
    HOLD_SESSION,     /* the claim's session has it, too, or was told to take it: see session_lock.h */
    HOLD_FREED,       /* it had it: the lane is settled */
    HOLD_LEASE,       /* an entry in outbox.parked has the lane's token: see lease.h */
    HOLD_CALLED_BACK, /* the same; but its term is about to be over, so what was under way is called back */
    HOLD_LOST,        /* nobody, or another relay: nothing more is sent */
    HOLDS
};

/* Is there such a move? */
bool lane_life_has(enum lane_state from, enum lane_state to);
bool lane_life_has_hold(enum hold from, enum hold to);

/* The tables, as docs/architecture.md has them. */
void lane_life_print(FILE *out);
void lane_life_print_holds(FILE *out);
