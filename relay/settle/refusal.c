#include "relay/settle/refusal.h"

#include "relay/base/backoff.h"
#include "relay/base/utf8.h"
#include "relay/queue/queue.h"
#include "relay/settle/blocked.h"
#include "relay/settle/round.h"
#include "relay/settle/settle.h"

#define TRIAL_US (30 * SECOND_US) /* from one trial to the next */

/* How long a table that has let others go is not suspected of refusing everything: enough for what is given back to be
 * claimed, delivered and refused again. */
#define BLAME_US (30 * SECOND_US)

#define CAUSE_MAX 300 /* bytes of what the database said */

/* What took too long: each time it is tried takes as long again. */
#define DEAR_PART 8

#define MOST_MAX 65536 /* more things than any settlement has */

static void take_fewer(struct queue *queue, struct batch *batch, size_t things, size_t parts, instant_us now)
{
    if (batch->halving.most == 0)
        batch->refused_at = now;
    halving_failed(&batch->halving, things, parts);
    if (queue->refusal.doubt_at == 0)
        queue->refusal.doubt_at = now;
}

/* Its turn comes again after all the others'. */
static void move_to_end(struct lane *lane)
{
    struct batch *batch = lane->batch;
    struct lane **place = &batch->lanes;
    batch->lanes_end->next = lane;
    while (*place != lane)
        place = &(*place)->next;
    *place = lane->next;
    lane->next = NULL;
    batch->lanes_end = lane;
}

static void blame_row(struct queue *queue, struct item *item, const struct error *cause)
{
    queue->refusal.blamed = true;
    queue->refusal.blamed_id = item->event.id;
    struct error *why = arena_alloc(item->lane->batch->arena, sizeof *why);
    error_set(why, ERROR_REFUSED, "its row cannot be taken out of %s: mend what refuses it, or delete it by hand: %.*s",
              queue->config->table, (int)utf8_fit(span_of(cause->text), CAUSE_MAX), cause->text);
    item->delivery.cause = why;
    if (!item->lane->refused)
        item->lane->refused = item;
}

/* Of the one thing of the lane that was to be settled; NULL: that is only an entry in parked. */
static struct item *item_of_thing(const struct lane *lane)
{
    return lane->acked > 0 ? lane->first : lane->failed;
}

/* The lane goes on without the one thing of it that was to be settled. */
static void leave_out(struct queue *queue, struct lane *lane, const struct error *cause, instant_us now)
{
    struct item *item = item_of_thing(lane);
    if (lane->acked > 0) {
        lane->first = item->next;
        lane->acked--;
    } else if (lane->outcome != LANE_DEAD) {
        /* Not even its wait can be written down. Here it is kept away; other relays are on their own. */
        lane->outcome = LANE_RELEASED;
        lane->release_us = queue->config->retry_max_us;
        lane->refused = NULL;
        if (lane->batch->hold == HOLD_LEASE)
            lane_hold(lane, HOLD_LOST); /* nor that it is given back: its term will run out */
        return;
    }
    if (lane->batch->hold == HOLD_LOST) /* without the lock nothing is written about it: who claims it next finds out */
        queue->ordering->type->released(queue->ordering, item->event.id, item->event.id, now);
    else
        blame_row(queue, item, cause);
}

/* Its failures so far may be forgotten: somebody has opened its key. */
static bool was_blamed(const struct queue *queue, const struct lane *lane)
{
    const struct item *item = item_of_thing(lane);
    return item && queue->refusal.blamed && queue->refusal.blamed_id == item->event.id;
}

/* The only one of a claim is blamed at once where nothing else is in doubt: it must not hold up what comes next. But
 * what the server calls an error of its own may be the session's: a new one comes first. */
static bool is_to_blame(const struct queue *queue, const struct lane *lane, const struct error *cause, instant_us now)
{
    const struct batch *batch = lane->batch;
    bool known = was_blamed(queue, lane) || (lane->waited && lane->first && lane->first->event.attempt > 1);
    bool first = cause->kind != ERROR_INTERNAL && batch->unsettled == 1 && batch->refused_at == queue->refusal.doubt_at;
    return now < queue->refusal.blame_until || known || first;
}

static bool take(struct queue *queue, struct settle_job *job, size_t part, const struct error *cause, instant_us now)
{
    size_t things = job->things;
    struct lane *lane = job->thing;
    for (size_t i = 0; i < job->lane_count; i++)
        take_fewer(queue, job->lanes[i]->batch, things, part, now);
    settle_abort(job);
    if (things != 1)
        return things > 1; /* what only moves entries on is tried again as it is */
    struct batch *batch = lane->batch;
    if (is_to_blame(queue, lane, cause, now)) {
        leave_out(queue, lane, cause, now);
        return true;
    }
    move_to_end(lane);
    if (part < DEAR_PART && ++batch->refusals < batch->finished)
        return true;
    batch->refusals = 0;
    return false;
}

bool refusal_take(struct queue *queue, struct settle_job *job, const struct error *cause, instant_us now)
{
    return take(queue, job, 2, cause, now);
}

/* Of a single thing that did not get the time it may take, that is no news of its row. */
static bool take_late(struct queue *queue, struct settle_job *job, const struct error *cause, instant_us now)
{
    size_t things = job->things;
    bool cancelled = now - job->sent_at < queue->process->statement_timeout_us;
    if (things > 1 && !cancelled)
        halving_failed(&queue->refusal.in_time, things, DEAR_PART);
    if (things > 1 || !cancelled)
        return take(queue, job, DEAR_PART, cause, now);
    blocked_take(queue, job, cause, now);
    return true;
}

bool refusal_answer(struct queue *queue, struct round *round, instant_us now)
{
    struct settle_job *job = round->job;
    round->job = NULL;
    if (round->rule->refusal == REFUSAL_BY_TIME)
        return take_late(queue, job, &round->error, now);
    if (round->rule->refusal != REFUSAL_BY_LOCK)
        return refusal_take(queue, job, &round->error, now);
    blocked_take(queue, job, &round->error, now);
    return true;
}

/* What is settled at once is a part of what took too long, until that is quickly done. */
static void allow_more(struct queue *queue, const struct settle_job *job, instant_us now)
{
    struct halving *in_time = &queue->refusal.in_time;
    if (in_time->most == 0 || job->things < in_time->most ||
        now - job->sent_at > queue->process->statement_timeout_us / DEAR_PART)
        return;
    halving_passed(in_time, MOST_MAX);
    if (in_time->most == MOST_MAX)
        in_time->most = 0;
}

/* Only what was sent when there was doubt, and took a delivered event out, says that the table lets others go. */
void refusal_passed(struct queue *queue, const struct settle_job *job, instant_us now)
{
    struct refusal *refusal = &queue->refusal;
    struct batch *batch = job->lanes[0]->batch;
    halving_passed(&batch->halving, SIZE_MAX);
    batch->refusals = 0;
    allow_more(queue, job, now);
    if (refusal->doubt_at == 0 || job->doubt_at != refusal->doubt_at || job->settlement.done_count <= job->missing)
        return;
    refusal->doubt_at = 0;
    refusal->blame_until = now + BLAME_US;
}

void refusal_commit(struct queue *queue, struct settle_job *job, instant_us now)
{
    if (!settle_is_empty(job))
        refusal_passed(queue, job, now);
    settle_commit(queue, job, now);
}

void refusal_begin_parts(struct batch *batch)
{
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (lane->state != LANE_SETTLED)
            lane->start = lane->first;
}

void refusal_undo_parts(struct batch *batch)
{
    for (struct lane *lane = batch->lanes; lane; lane = lane->next) {
        if (!lane->start)
            continue;
        lane->first = lane->start;
        lane->start = NULL;
        lane->acked = 0;
        for (const struct item *item = lane->first; item != lane->unacked; item = item->next)
            lane->acked++;
        if (lane->state == LANE_SETTLED)
            lane_move(lane, LANE_FINISHED);
    }
}

void refusal_end_parts(struct batch *batch)
{
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        lane->start = NULL;
}

instant_us refusal_trial_at(const struct queue *queue)
{
    return queue->refusal.doubt_at > 0 ? queue->refusal.trial_at : INSTANT_NEVER;
}

void refusal_note_claim(struct queue *queue, instant_us now)
{
    if (queue->refusal.doubt_at > 0)
        queue->refusal.trial_at = now + TRIAL_US;
}
