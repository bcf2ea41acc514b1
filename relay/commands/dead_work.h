/* relay/commands/dead_work.h -- what `dead retry` and `dead drop` share while they go through one queue. */
#pragma once

#include "relay/base/error.h"
#include "relay/commands/dead_request.h"
#include "relay/config/config.h"
#include "relay/table/table.h"

#include <libpq-fe.h>

/* The statements of one action, for keys or for events without one. `unfit`: NULL where nothing has to fit. */
struct dead_statements {
    char *lock, *try, *unfit, *letters, *closed;
};

struct dead_work {
    PGconn *conn;
    const struct queue_config *queue;
    const struct table *table;
    const struct dead_filter *filter;
    enum dead_action action;
    struct dead_counts *counts;
    struct dead_statements with[2]; /* [0] of keys, [1] of events without a key */
    int64_t wait_ms;                /* for the key at hand */
    bool busy;                      /* it is: somebody else has a lock that it takes */
};

/* "key" or "event", for messages. */
const char *dead_work_noun(bool keyless);

/* The lock of a key, or of an event without one (`name` is its id), inside a transaction, for work->wait_ms. False with
 * work->busy when somebody else keeps it, or with *err. */
bool dead_work_lock(struct dead_work *work, bool keyless, const char *name, struct error *err) MUST_CHECK;

/* How long the key at hand may be waited for, of DEAD_PATIENCE_US in all. */
int64_t dead_work_patience_ms(const struct dead_work *work);

/* Counts a key, or an event without one, that is left as it is, and remembers the first. */
void dead_work_add_busy(struct dead_work *work, bool keyless, const char *name);

/* Counts and tells what cannot be done, after `failed`. `id` or `key` may be NULL. */
void dead_work_refuse(struct dead_work *work, const char *id, const char *key, const PGresult *failed);
