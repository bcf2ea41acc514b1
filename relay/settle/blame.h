/* relay/settle/blame.h -- when one row is to blame for a settlement that does not pass, and what becomes of it.
 *
 * A row is blamed when others pass. If the table refuses every settlement, an operator has to mend it: the relay
 * remembers acked events until then, delivers nothing again, and now and then claims one more key, as a test. */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/queue/batch.h"
#include "relay/queue/queue_parts.h"

struct queue;
struct settle_job;

/* A settlement of the batch was refused. Called before halving_failed(). */
void blame_note_refusal(struct queue *queue, struct batch *batch, instant_us now);

/* The one row of the lane that was to be settled was refused alone. True: the row is to blame, and stays in the table;
 * its lane goes on without it, and ends as one that failed there. */
bool blame_take(struct queue *queue, struct lane *lane, const struct error *cause, instant_us now);

/* The job has passed in its transaction. */
void blame_note_success(struct queue *queue, const struct settle_job *job, instant_us now);

/* From then on one key may be claimed although orphans wait, to test whether the table accepts its settlement.
 * INSTANT_NEVER: no test is needed. */
instant_us blame_test_claim_at(const struct queue *queue);

/* A claim has found events to deliver: if that was a test claim, the next one comes later. */
void blame_note_claim(struct queue *queue, instant_us now);
