/* relay/settle/refusal.h -- what the database does not let out of a table.
 *
 * A settlement is refused as a whole. It is tried again in halves, down to the one row to blame, whose key then waits:
 *
 *   settle_collect -> refusal_answer -> settle_collect -> ... -> refusal_commit
 *
 * So is one that takes too long. A row that somebody else holds is not to blame: see blocked.h.
 *
 * A row is blamed when others pass. A table that lets nothing go will be mended by somebody: what was acked is kept in
 * mind until then, nothing is delivered again, and now and then one more key is claimed, to find out. */
#ifndef RELAY_REFUSAL_H
#define RELAY_REFUSAL_H

#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/queue/batch.h"
#include "relay/queue/queue_parts.h"

struct queue;
struct round;
struct settle_job;

/* The database has refused the round's settlement, or has not got it done in time, and would maybe not with fewer rows:
 * the lanes wait to be collected again. False: it is not to be tried again at once. Frees the job. */
bool refusal_answer(struct queue *queue, struct round *round, instant_us now);

/* What is in the rows may be why: the lanes wait to be collected again, fewer things at a time. One thing that is to
 * blame stays in the table: its lane goes on without it, and ends as one that failed there. False: nothing passes, and
 * it is not to be tried again at once. Frees the job. */
bool refusal_take(struct queue *queue, struct settle_job *job, const struct error *cause, instant_us now);

/* The transaction of the job, which is not empty, has done what it says: more may be tried again. */
void refusal_passed(struct queue *queue, const struct settle_job *job, instant_us now);

/* The transaction of the job has committed: refusal_passed(), unless it was empty, and settle_commit(). */
void refusal_commit(struct queue *queue, struct settle_job *job, instant_us now);

/* From here on the batch is settled in parts of one transaction. When that is lost, refusal_undo_parts() makes what was
 * acked in its finished lanes wait to be settled again. */
void refusal_begin_parts(struct batch *batch);
void refusal_undo_parts(struct batch *batch);
void refusal_end_parts(struct batch *batch); /* it has committed */

/* From then on one key may be claimed although orphans wait, to find out whether the table lets it go. INSTANT_NEVER:
 * nobody doubts that. */
instant_us refusal_trial_at(const struct queue *queue);

/* A claim has found something to deliver: if it is such a trial, it was the last one for a while. */
void refusal_note_claim(struct queue *queue, instant_us now);

#endif
