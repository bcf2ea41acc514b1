/* relay/claim/claim.h -- connections that lock keys and read their oldest events.
 *
 * A claim's transaction stays open while its lanes are delivered, because its locks exclude other relays. It has only
 * read then, so it holds back neither vacuum nor other sessions. When all lanes are finished, their settlement, the
 * COMMIT and the next claim travel in one round trip. The same is done beside a straggler, whose lock the session takes
 * (session_lock.h). Behind a pooler, finished lanes are settled on the side connection and more keys
 * are claimed into the same transaction. */
#pragma once

#include "relay/base/clock.h"
#include "relay/claim/claim_state.h"

struct pollset;
struct queue;

void claim_open(struct queue *queue, struct claim *claim, size_t index);
void claim_close(struct claim *claim);

/* One turn for every claim of the queue: takes results, starts rounds. New batches go to queue->arrived. */
void claim_ready(struct queue *queue, const struct pollset *ps, instant_us now);
void claim_prepare(struct queue *queue, struct pollset *ps, instant_us now);

/* Ends every claim whose lanes are all finished. */
void claim_settle_resolved(struct queue *queue, instant_us now);

/* Leases the claim's keys, or settles its finished lanes, commits, and claims again if there is reason to. Or settles
 * some lanes, if the database has refused more. */
void claim_finish(struct claim *claim, instant_us now);

/* Every lane waits to be settled or is, and nothing of them is on its way out on the side connection: the locks have
 * to outlive that transaction. */
bool claim_is_finished(const struct claim *claim);

/* Sets queue->claiming.offered: the claims whose finished lanes the side connection may settle, because some lanes have
 * been under way for long and the claim's own connection cannot settle before they end. */
void claim_offer(struct queue *queue, instant_us now);
