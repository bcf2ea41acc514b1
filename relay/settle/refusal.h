/* relay/settle/refusal.h -- a settlement that does not pass is halved, until one row is to blame or waited for.
 *
 *   settle_collect -> refusal_answer -> settle_collect -> ... -> refusal_commit
 *
 * A settlement does not pass as a whole, because the database refuses one row, because another session holds one, or
 * because all rows take too long. Then fewer rows are settled at a time (relay/base/halving.h). A row that does not
 * pass alone is to blame (blame.h), or its lane waits (blocked.h). */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/queue/batch.h"
#include "relay/queue/queue_parts.h"

struct queue;
struct round;
struct settle_job;

/* The database has refused the round's settlement, or has not got it done in time, and may get fewer rows done: the
 * lanes wait to be collected again. False: the settlement is not to be tried again at once. Frees the job. */
bool refusal_answer(struct queue *queue, struct round *round, instant_us now);

/* How a settlement that did not pass is tried again. */
struct refusal_way {
    size_t divide_by; /* so many times fewer rows next time */
    bool waits;       /* if one row alone does not pass, its lane waits; else the row is to blame */
};

extern const struct refusal_way refusal_blames, refusal_waits; /* in halves */

/* The lanes wait to be collected again, fewer rows at a time; one row alone is blamed, or its lane waits. False: no row
 * passes, and the settlement is not to be tried again at once. Frees the job. */
bool refusal_halve(struct queue *queue, struct settle_job *job, struct refusal_way way, const struct error *cause,
                   instant_us now);

/* The transaction of the job has committed: more rows may be tried at a time again, unless it was empty. */
void refusal_commit(struct queue *queue, struct settle_job *job, instant_us now);

/* From here on the batch is settled by halves in one transaction. If the transaction is lost, refusal_undo_halving()
 * makes acked events of finished lanes wait to be settled again. */
void refusal_begin_halving(struct batch *batch);
void refusal_undo_halving(struct batch *batch);
void refusal_end_halving(struct batch *batch); /* the transaction has committed */
