/* relay/settle/refusal.h -- a settlement that does not pass is halved, until one row is to blame or waited for.
 *
 *   settle_collect -> refusal_answer -> settle_collect -> ... -> refusal_commit
 *
 * A settlement does not pass as a whole, because the database refuses one row, because somebody else holds one, or
 * because all of them take too long. It is tried again in parts (relay/base/halving.h). What does not pass alone is to
 * blame (blame.h), or it is waited for (blocked.h). */
#pragma once

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

/* How a settlement that did not pass is tried again. */
struct refusal_way {
    size_t parts; /* it is one of so many, next time */
    bool waits;   /* one thing alone is waited for; else it is to blame */
};

extern const struct refusal_way refusal_blames, refusal_waits; /* in halves */

/* The lanes wait to be collected again, fewer things at a time; and one thing alone is blamed, or waited for. False:
 * nothing passes, and it is not to be tried again at once. Frees the job. */
bool refusal_halve(struct queue *queue, struct settle_job *job, struct refusal_way way, const struct error *cause,
                   instant_us now);

/* The transaction of the job has committed. If it was not empty, it has done what it says, and more may be tried again.
 */
void refusal_commit(struct queue *queue, struct settle_job *job, instant_us now);

/* From here on the batch is settled in parts of one transaction. When that is lost, refusal_undo_parts() makes what was
 * acked in its finished lanes wait to be settled again. */
void refusal_begin_parts(struct batch *batch);
void refusal_undo_parts(struct batch *batch);
void refusal_end_parts(struct batch *batch); /* it has committed */
