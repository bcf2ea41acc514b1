/* relay/commands/replay.h -- archived and dead events, sent again.
 *
 *   replay_make -> replay_open -> (a relay over replay_config() -> replay_look) ... -> replay_finish -> replay_close
 *   replay_cancel
 *
 * DESIGN. A replay is a queue like any other, over a table of pgcourier's own (sql/schema/016_replay.sql) that has what
 * was chosen, with the lock class of the queue that the events were of. So a relay delivers from it, order, retries,
 * settlement and crashes are those of every queue, and a key that a live event holds is not delivered from it. A key
 * may also be held by a lease, or paused: those are entries in outbox.parked, which its condition looks for under the
 * lock. Of dead letters for the queue's own sink it looks whether they still are: the same lock is held by who retries
 * or drops them, so each is sent by one of the two. Refused alternatives: to insert the events into the queue's table
 * again, whose constraints and triggers are not ours, and to nobody's good when they go to another sink; and to read
 * the archive step by step, which has no index. */
#pragma once

#include "relay/base/error.h"
#include "relay/commands/column_moves.h"
#include "relay/config/config.h"
#include "relay/postgres/query.h"

struct replay;

struct replay_request {
    const char *queue, *source;             /* source: archive or dead */
    const char *ids;                        /* an array's text; NULL, as the next four: any */
    const char *key, *type, *since, *until; /* the times as PostgreSQL reads them */
    const char *sink, *destination;         /* NULL: the queue's own */
    int64_t rate;                           /* events a second; 0: no limit */
    bool dry_run;                           /* only count */

    const struct column_moves *moves; /* NULL: none */
};

/* How far it is. */
struct replay_left {
    int64_t unsent, movable, closed; /* events; those of them that wait for nobody; closed keys */
    int64_t withdrawn;               /* events that are sent no more: dead letters that are none by now */
    bool paused;                     /* the queue is */
    char error[200];                 /* of a closed key, or empty */
};

/* Chooses the events, in one statement. *ret_id is 0 when there are none, and with dry_run. Blocking, as all here,
 * until the asker's `stop_fd` is readable. After a failure nothing is made, or *err says that it may be, and the
 * connection is good for PQfinish() only. */
bool replay_make(const struct asker *asker, const struct config *config, const struct replay_request *request,
                 int64_t *ret_id, int64_t *ret_events, struct error *err) MUST_CHECK;

/* Takes up replay `id`; `rate` instead of its own, unless 0. Uses the asker's connection until replay_close(): its
 * transaction keeps other processes away, and writes nothing while events are sent. NULL and *err on failure. */
struct replay *replay_open(const struct asker *asker, const struct config *config, int64_t id, int64_t rate,
                           struct error *err) MUST_CHECK;
void replay_close(struct replay *replay); /* NULL is a no-op; it may be opened again */

/* For relay_open(), one queue and one sink. Valid until replay_close(). */
const struct config *replay_config(const struct replay *replay);
int64_t replay_events(const struct replay *replay); /* that were chosen */

/* `last`: nothing depends on the answer any more, so it has REPLAY_LAST_S seconds to come. */
#define REPLAY_LAST_S 5

bool replay_look(struct replay *replay, bool last, struct replay_left *ret, struct error *err) MUST_CHECK;

/* All of it is sent: ends it, in the transaction that has kept others away, so that none of them finds it whole and not
 * yet ended. Only replay_close() may follow. */
bool replay_finish(struct replay *replay, struct error *err) MUST_CHECK;

/* Forgets the replay and what is left of it, in a transaction of its own. */
bool replay_cancel(const struct asker *asker, int64_t id, int64_t *ret_unsent, struct error *err) MUST_CHECK;
