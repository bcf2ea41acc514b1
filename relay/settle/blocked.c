#include "relay/settle/blocked.h"

#include "relay/queue/queue.h"
#include "relay/queue/report.h"
#include "relay/settle/round.h"
#include "relay/settle/settle.h"

/* A row that another session holds is found by halving the settlement, each time after a lock wait: so as soon as one
 * is met, lock waits are short, for a while. A row that is still held then is tried again later. */
#define SHORT_LOCK_TIMEOUT "20ms"
#define SHORT_WAITS_US (30 * SECOND_US)

/* Of one row each, one after another. A transaction full of deletes must not stay open while hundreds of rows are
 * tried.
 */
#define REFUSALS_MAX 32

static const struct backoff blocked_backoff = {.base_us = 100 * MS_US, .max_us = 5 * SECOND_US};

static void block_lane(struct queue *queue, struct lane *lane, instant_us now)
{
    lane_move(lane, LANE_BLOCKED);
    lane->blocked_until = now + backoff_delay_us(&blocked_backoff, lane->blocked_times + 1, &queue->rng);
    instant_us *first = &queue->blocked.wake_at;
    *first = *first > 0 ? instant_min(*first, lane->blocked_until) : lane->blocked_until;
}

void blocked_wait(struct queue *queue, struct lane *lane, const struct error *cause, instant_us now)
{
    struct batch *batch = lane->batch;
    if (lane->state != LANE_FINISHED) {
        lane->only_at_end = true; /* the lane is under way, so its key stays held */
        return;
    }
    if (lane->blocked_times == 0)
        report_blocked(lane, cause);
    block_lane(queue, lane, now);
    lane->blocked_times++;
    if (++batch->refusals < REFUSALS_MAX)
        return;
    batch->refusals = 0;
    for (struct lane *other = batch->lanes; other; other = other->next)
        if (other->state == LANE_FINISHED)
            block_lane(queue, other, now);
}

void blocked_met(struct queue *queue, instant_us now)
{
    queue->blocked.short_waits_until = now + SHORT_WAITS_US;
}

/* Returns when the next wait is over; INSTANT_NEVER: there is none. */
static instant_us wake_lanes(const struct queue *queue, instant_us now)
{
    instant_us next = INSTANT_NEVER;
    struct holds_walk walk = holds_walk(&queue->holds);
    for (struct batch *batch; (batch = holds_next(&walk));)
        for (struct lane *lane = batch->blocked > 0 ? batch->lanes : NULL; lane; lane = lane->next)
            if (lane->state != LANE_BLOCKED)
                continue;
            else if (lane->blocked_until <= now)
                lane_move(lane, LANE_FINISHED);
            else
                next = instant_min(next, lane->blocked_until);
    return next;
}

instant_us blocked_wake_at(const struct queue *queue)
{
    return queue->blocked.wake_at > 0 ? queue->blocked.wake_at : INSTANT_NEVER;
}

void blocked_wake(struct queue *queue, instant_us now)
{
    struct blocked *blocked = &queue->blocked;
    if (now < blocked_wake_at(queue))
        return;
    instant_us next = wake_lanes(queue, now);
    blocked->wake_at = next == INSTANT_NEVER ? 0 : next;
}

const char *blocked_lock_timeout(const struct queue *queue, const struct db *db, instant_us now)
{
    if (now < queue->blocked.short_waits_until)
        return SHORT_LOCK_TIMEOUT;
    return db_is_shared(db) ? queue->side_status.lock_timeout : NULL;
}

bool blocked_is_full(const struct queue *queue, size_t lanes)
{
    return lanes >= (size_t)queue->config->keys_per_claim;
}
