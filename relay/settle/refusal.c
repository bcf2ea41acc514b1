#include "relay/settle/refusal.h"

#include "relay/queue/queue.h"
#include "relay/settle/blame.h"
#include "relay/settle/blocked.h"
#include "relay/settle/round.h"
#include "relay/settle/settle.h"

/* A settlement that took too long is divided by so many: each further try may cost a whole statement_timeout. */
#define TIMEOUT_DIVIDE_BY 8

/* Each settlement that is refused for a row that has moved is an error in the server's log, and who updates rows under
 * way does it again and again. */
#define GO_BY_ID 1000

#define ROWS_MAX 65536 /* more rows than any settlement has */

const struct refusal_way refusal_blames = {.divide_by = 2}, refusal_waits = {.divide_by = 2, .waits = true};

/* The lane's turn comes again after all the others'. */
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

/* One row alone was refused, and maybe all rows are. */
static bool blame(struct queue *queue, struct lane *lane, size_t divide_by, const struct error *cause, instant_us now)
{
    struct batch *batch = lane->batch;
    if (blame_take(queue, lane, cause, now))
        return true;
    move_to_end(lane);
    if (divide_by < TIMEOUT_DIVIDE_BY && ++batch->refusals < batch->finished)
        return true;
    batch->refusals = 0;
    return false;
}

bool refusal_halve(struct queue *queue, struct settle_job *job, struct refusal_way way, const struct error *cause,
                   instant_us now)
{
    size_t row_count = job->row_count;
    struct lane *lane = job->lane_of_first_row;
    if (way.waits)
        blocked_met(queue, now);
    for (size_t i = 0; i < job->lane_count; i++) {
        struct batch *batch = job->lanes[i]->batch;
        if (!way.waits)
            blame_note_refusal(queue, batch, now);
        halving_failed(&batch->halving, row_count, way.divide_by);
    }
    settle_abort(job);
    if (row_count != 1)
        return row_count > 1 || way.waits; /* a settlement that only moves entries on is sent again as it is */
    if (!way.waits)
        return blame(queue, lane, way.divide_by, cause, now);
    blocked_wait(queue, lane, cause, now);
    return true;
}

/* A statement that was cancelled before statement_timeout tells nothing about its one row: the lane waits. */
static struct refusal_way way_of_late(struct queue *queue, const struct settle_job *job, instant_us now)
{
    bool cancelled = now - job->sent_at < queue->process->statement_timeout_us;
    if (job->row_count > 1 && !cancelled)
        halving_failed(&queue->refusal.in_time, job->row_count, TIMEOUT_DIVIDE_BY);
    if (job->row_count > 1 || !cancelled)
        return (struct refusal_way){.divide_by = TIMEOUT_DIVIDE_BY};
    return refusal_waits;
}

bool refusal_answer(struct queue *queue, struct round *round, instant_us now)
{
    struct settle_job *job = round->job;
    struct refusal_way way = refusal_blames;
    bool moved = round_may_have_moved_rows(round);
    round->job = NULL;
    if (moved) {
        queue->refusal.go_by_id = GO_BY_ID;
        settle_abort(job);
        return true;
    }
    if (round->refusal == REFUSAL_BY_LOCK)
        way = refusal_waits;
    else if (round->refusal == REFUSAL_BY_TIME)
        way = way_of_late(queue, job, now);
    return refusal_halve(queue, job, way, &round->error, now);
}

/* After a timeout settlements are limited in size. The limit doubles while they end within an eighth of
 * statement_timeout. */
static void allow_more(struct queue *queue, const struct settle_job *job, instant_us now)
{
    struct halving *in_time = &queue->refusal.in_time;
    if (in_time->most == 0 || job->row_count < in_time->most ||
        now - job->sent_at > queue->process->statement_timeout_us / TIMEOUT_DIVIDE_BY)
        return;
    halving_succeeded(in_time, ROWS_MAX);
    if (in_time->most == ROWS_MAX)
        in_time->most = 0;
}

static void note_success(struct queue *queue, const struct settle_job *job, instant_us now)
{
    struct batch *batch = job->lanes[0]->batch;
    halving_succeeded(&batch->halving, SIZE_MAX);
    batch->refusals = 0;
    queue->refusal.go_by_id -= queue->refusal.go_by_id > 0;
    allow_more(queue, job, now);
    blame_note_success(queue, job, now);
}

void refusal_commit(struct queue *queue, struct settle_job *job, instant_us now)
{
    if (!settle_is_empty(job))
        note_success(queue, job, now);
    settle_commit(queue, job, now);
}

void refusal_begin_halving(struct batch *batch)
{
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (lane->state != LANE_SETTLED)
            lane->start = lane->first;
}

void refusal_undo_halving(struct batch *batch)
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

void refusal_end_halving(struct batch *batch)
{
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        lane->start = NULL;
}
