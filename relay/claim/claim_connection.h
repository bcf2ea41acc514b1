/* relay/claim/claim_connection.h -- what travels on a claim's connection, and what comes back.
 *
 * One round settles and commits what is held, begins anew and claims, or a part of that. A round that fails costs the
 * transaction and with it the locks: what was held becomes the queue's orphans, of which nothing more is sent. */
#ifndef RELAY_CLAIM_CONNECTION_H
#define RELAY_CLAIM_CONNECTION_H

#include "relay/base/pollset.h"
#include "relay/queue/queue.h"

struct settle_job;

/* Settles `job` (NULL: nothing) and commits, when `commit`; claims `keys` keys, unless 0. With nothing of all that it
 * says a word in the transaction, which goes on. */
void claim_round_start(struct claim *claim, struct settle_job *job, bool commit, int64_t keys, instant_us now);

/* Takes what has arrived. New batches go to queue->arrived. */
void claim_round_progress(struct claim *claim, const struct pollset *ps, instant_us now);

#endif
