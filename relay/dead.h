/* relay/dead.h -- taking up again what the relays gave up: dead letters, and keys that are closed.
 *
 * Each key is one transaction that holds the key's delivery lock, so it never meets a delivery of that key. What is
 * done before an error stays done. */
#ifndef RELAY_DEAD_H
#define RELAY_DEAD_H

#include "relay/base/error.h"
#include "relay/config.h"

#include <libpq-fe.h>

enum dead_action {
    DEAD_RETRY, /* dead letters go back into the table under their ids; closed keys are tried again */
    DEAD_DROP   /* dead letters are forgotten; a closed key loses the event it failed on and goes on */
};

/* Which ones; NULL = any. */
struct dead_filter {
    const char *queue, *key, *id; /* id: the event's, in decimal */
    const char *error;            /* what it failed with, as for SQL's LIKE */
};

struct dead_counts {
    int64_t letters, keys;
};

/* One queue's; adds to *ret. `filter->queue` is not looked at. ERROR_CONFLICT: a key stayed busy for 5 s. */
bool dead_act(PGconn *conn, const struct queue_config *queue, enum dead_action action, const struct dead_filter *filter,
              struct dead_counts *ret, struct error *err) MUST_CHECK;

#endif
