/* relay/queue/lane_life.h -- the states of a lane, and who moves it from one to another.
 *
 * lane_move() makes the moves. Their table is in lane_life.c; docs/architecture.md shows it. */
#ifndef RELAY_LANE_LIFE_H
#define RELAY_LANE_LIFE_H

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

/* Is there such a move? */
bool lane_life_has(enum lane_state from, enum lane_state to);

/* The table, as docs/architecture.md has it. */
void lane_life_print(FILE *out);

#endif
