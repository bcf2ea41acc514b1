/* relay/claim.h -- connections that lock keys and read their oldest events.
 *
 * A claim's transaction stays open while its lanes are delivered, because its locks are what keeps other relays away;
 * it has then only read, so it holds back neither vacuum nor anybody else. When all lanes are finished, their
 * settlement, the COMMIT and the next claim travel in one round trip. While a straggler keeps it open, finished lanes
 * are settled on the side connection and more keys are claimed into the same transaction. */
#ifndef RELAY_CLAIM_H
#define RELAY_CLAIM_H

#include "relay/queue.h"

/* A transaction that a straggler keeps open may come to hold this many times keys_per_claim locks. */
#define CLAIM_LOCKS_FACTOR 4

void claim_open(struct queue *queue, struct claim *claim, size_t index);
void claim_close(struct claim *claim);

/* One turn for every claim of the queue: takes results, starts rounds. New batches go to queue->arrived. */
void claim_ready(struct queue *queue, const struct pollset *ps, instant_us now);
void claim_prepare(struct queue *queue, struct pollset *ps, instant_us now);

/* All lanes are finished: settle them, commit, and claim again if there is reason to. Or settle some of them, if the
 * database has refused more. */
void claim_finish(struct claim *claim, instant_us now);

/* Every lane waits to be settled or is, and nothing of them is on its way out on the side connection: the locks have
 * to outlive that transaction. */
bool claim_is_finished(const struct claim *claim);

/* The database has refused to settle some of its lanes: they are settled a few at a time, before the transaction ends.
 */
bool claim_was_refused(const struct claim *claim);

/* Lanes are held and some of them have been under way for long. */
bool claim_is_straggling(const struct claim *claim, instant_us now);

#endif
