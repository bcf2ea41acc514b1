/* relay/commands/dead.h -- taking up again what the relays gave up: dead letters, and keys that are closed.
 *
 * Each key is one transaction that holds the key's delivery lock, so it never meets a delivery of that key. What is
 * done before an error stays done. A key that is being delivered is left for the end, when it is waited for: for
 * DEAD_PATIENCE_US in all, however many there are. */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/commands/column_moves.h"
#include "relay/config/config.h"

#include <libpq-fe.h>

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

#define DEAD_PATIENCE_US (5 * SECOND_US)
#define DEAD_NAMES 3

/* Of a run, over all of its queues; zeroed before the first. */
struct dead_counts {
    int64_t letters, keys;
    int64_t busy;          /* keys, and events without one, that were left as they are */
    char busy_names[1024]; /* of the first DEAD_NAMES of these */
    int64_t waited_us;     /* for such */
};

/* One queue's; adds to *ret. `filter->queue` is not looked at. That keys are busy is no failure. */
bool dead_act(PGconn *conn, const struct queue_config *queue, enum dead_action action, const struct dead_filter *filter,
              struct dead_counts *ret, struct error *err) MUST_CHECK;
