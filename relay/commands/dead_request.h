/* relay/commands/dead_request.h -- what of the dead letters and closed keys is asked for, and what came of it. */
#pragma once

#include "relay/base/clock.h"
#include "relay/commands/column_moves.h"

#include <stdint.h>

enum dead_action {
    DEAD_RETRY, /* dead letters go back into the table under their ids; closed keys are tried again */
    DEAD_DROP   /* dead letters are forgotten; a closed key loses the event it failed on and goes on */
};

/* Which ones; NULL = any. */
struct dead_filter {
    const char *queue, *key, *id; /* id: the event's, in decimal */
    const char *error;            /* what it failed with, as for SQL's LIKE */

    const struct column_moves *moves; /* of letters that are retried; NULL: none */
};

/* A dead letter, or a closed key, that stays what it is. Valid during the call. */
struct dead_refusal {
    const char *queue, *id, *key; /* id: NULL, of a closed key; key: NULL, of an event without one */
    const char *why, *remedy;
};

#define DEAD_PATIENCE_US (5 * SECOND_US)
#define DEAD_NAMES 3

/* Of a run, over all of its queues; zeroed before the first, but for `tell`. */
struct dead_counts {
    void (*tell)(const struct dead_refusal *refusal); /* called at once for each of `refused` */
    int64_t letters, keys, refused;
    int64_t busy;          /* keys, and events without one, that were left as they are */
    char busy_names[1024]; /* of the first DEAD_NAMES of these */
    int64_t waited_us;     /* for such */
};
