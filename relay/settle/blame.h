/* relay/settle/blame.h -- when one row is to blame for a settlement that does not pass, and what becomes of it.
 *
 * A row is blamed when others pass. A table that lets nothing go will be mended by somebody: what was acked is kept in
 * mind until then, nothing is delivered again, and now and then one more key is claimed, to find out. */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/queue/batch.h"
#include "relay/queue/queue_parts.h"

struct queue;
struct settle_job;

/* Something of the batch was refused, before its halving is told of that. */
void blame_doubt(struct queue *queue, struct batch *batch, instant_us now);

/* The lane's one thing that was to be settled was refused alone. True: it is to blame, and stays in the table; its lane
 * goes on without it, and ends as one that failed there. */
bool blame_take(struct queue *queue, struct lane *lane, const struct error *cause, instant_us now);

/* The transaction of the job has done what it says. */
void blame_passed(struct queue *queue, const struct settle_job *job, instant_us now);

/* From then on one key may be claimed although orphans wait, to find out whether the table lets it go. INSTANT_NEVER:
 * nobody doubts that. */
instant_us blame_trial_at(const struct queue *queue);

/* A claim has found something to deliver: if it is such a trial, it was the last one for a while. */
void blame_note_claim(struct queue *queue, instant_us now);
