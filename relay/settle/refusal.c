#include "relay/settle/refusal.h"

#include "relay/queue/queue.h"
#include "relay/settle/blame.h"
#include "relay/settle/blocked.h"
#include "relay/settle/round.h"
#include "relay/settle/settle.h"

/* A settlement that took too long is divided by so many: each further try may cost a whole statement_timeout. */
#define DEAR_PARTS 8

#define MOST_MAX 65536 /* more things than any settlement has */

const struct refusal_way refusal_blames = {.parts = 2}, refusal_waits = {.parts = 2, .waits = true};

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

/* One thing alone was refused, and maybe all are. */
static bool blame(struct queue *queue, struct lane *lane, size_t parts, const struct error *cause, instant_us now)
{
    struct batch *batch = lane->batch;
    if (blame_take(queue, lane, cause, now))
        return true;
    move_to_end(lane);
    if (parts < DEAR_PARTS && ++batch->refusals < batch->finished)
        return true;
    batch->refusals = 0;
    return false;
}

bool refusal_halve(struct queue *queue, struct settle_job *job, struct refusal_way way, const struct error *cause,
                   instant_us now)
{
    size_t things = job->things;
    struct lane *lane = job->thing;
    if (way.waits)
        blocked_met(queue, now);
    for (size_t i = 0; i < job->lane_count; i++) {
        struct batch *batch = job->lanes[i]->batch;
        if (!way.waits)
            blame_doubt(queue, batch, now);
        halving_failed(&batch->halving, things, way.parts);
    }
    settle_abort(job);
    if (things != 1)
        return things > 1 || way.waits; /* what only moves entries on is tried again as it is */
    if (!way.waits)
        return blame(queue, lane, way.parts, cause, now);
    blocked_wait(queue, lane, cause, now);
    return true;
}

/* A single thing whose statement was cancelled before statement_timeout tells nothing about its row: the lane waits. */
static struct refusal_way way_of_late(struct queue *queue, const struct settle_job *job, instant_us now)
{
    bool cancelled = now - job->sent_at < queue->process->statement_timeout_us;
    if (job->things > 1 && !cancelled)
        halving_failed(&queue->refusal.in_time, job->things, DEAR_PARTS);
    if (job->things > 1 || !cancelled)
        return (struct refusal_way){.parts = DEAR_PARTS};
    return refusal_waits;
}

bool refusal_answer(struct queue *queue, struct round *round, instant_us now)
{
    struct settle_job *job = round->job;
    struct refusal_way way = refusal_blames;
    round->job = NULL;
    if (round->rule->refusal == REFUSAL_BY_LOCK)
        way = refusal_waits;
    else if (round->rule->refusal == REFUSAL_BY_TIME)
        way = way_of_late(queue, job, now);
    return refusal_halve(queue, job, way, &round->error, now);
}

/* After a timeout settlements are limited in size. The limit doubles while they end within an eighth of
 * statement_timeout. */
static void allow_more(struct queue *queue, const struct settle_job *job, instant_us now)
{
    struct halving *in_time = &queue->refusal.in_time;
    if (in_time->most == 0 || job->things < in_time->most ||
        now - job->sent_at > queue->process->statement_timeout_us / DEAR_PARTS)
        return;
    halving_passed(in_time, MOST_MAX);
    if (in_time->most == MOST_MAX)
        in_time->most = 0;
}

static void passed(struct queue *queue, const struct settle_job *job, instant_us now)
{
    struct batch *batch = job->lanes[0]->batch;
    halving_passed(&batch->halving, SIZE_MAX);
    batch->refusals = 0;
    allow_more(queue, job, now);
    blame_passed(queue, job, now);
}

void refusal_commit(struct queue *queue, struct settle_job *job, instant_us now)
{
    if (!settle_is_empty(job))
        passed(queue, job, now);
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
