/* relay/claim/claim_connection.h -- what comes back on a claim's connection; claim_send.h has what travels there.
 *
 * One round settles and commits what is held, begins anew and claims, or a part of that. A round that fails costs the
 * transaction and with it the locks: what was held becomes the queue's orphans, of which nothing more is sent. */
#pragma once

#include "relay/base/pollset.h"
#include "relay/queue/queue.h"

struct settle_job;

/* Takes what has arrived. New batches go to queue->arrived. */
void claim_connection_progress(struct claim *claim, const struct pollset *ps, instant_us now);
