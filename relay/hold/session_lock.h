/* relay/hold/session_lock.h -- session locks, held beyond a claim's transaction while a straggler is under way.
 *
 *   session_lock_add -> session_lock_taken,
 *   then with each round: session_lock_add_free -> session_lock_freed -> session_lock_settled
 *
 * A transaction's locks end with it, all at once. So before it commits, its session takes the locks of lanes that are
 * not settled as well, and goes on claiming in its next transaction; each of those locks is freed when its lane's
 * settlement is committed. The lock is never free in between, and a lost connection frees them all.
 *
 * A session is given a lock that it has already, so a claim must leave out keys that its own session has locked
 * (claim_request.c). Behind a pooler the session is not ours: there are no such locks, see relay/queue/holding.h. */
#pragma once

#include "relay/queue/queue.h"
#include "relay/settle/round.h"

/* Lanes of this batch are left when the settlement under way is committed. */
bool session_lock_is_needed(const struct batch *batch);

/* Adds to the round being built, as its first statement: the session takes the locks of every lane that is not settled,
 * in batches of which some are left. Nothing when it has them. */
bool session_lock_add(const struct queue *queue, struct batch *batches, struct round *round, struct db *db,
                      struct error *err) MUST_CHECK;

/* That statement's result. From here on these lanes do not depend on the transaction. */
bool session_lock_taken(struct batch *batches, const struct round *round, const PGresult *res,
                        struct error *err) MUST_CHECK;

/* Adds to the round, behind its COMMIT: frees the locks of lanes that are settled then. Nothing when the session has
 * none. */
bool session_lock_add_free(const struct queue *queue, struct batch *batches, struct round *round, struct db *db,
                           struct error *err) MUST_CHECK;

/* That statement's result. */
bool session_lock_freed(const struct round *round, const PGresult *res, struct error *err) MUST_CHECK;

/* The round has committed, and freed the locks. */
void session_lock_settled(struct batch *batches);
