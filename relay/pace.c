#include "relay/pace.h"

#define EVENTS_A_WAIT 4 /* found by a claim: the next one comes poll.min later */
#define WAITS_MAX 5

static void plan_poll(struct queue *queue, bool found, instant_us now)
{
    const struct queue_config *config = queue->config;
    queue->work_known = found;
    if (found) {
        queue->idle_us = config->poll_min_us;
    } else {
        queue->metrics.empty_claims++;
        queue->idle_us = queue->idle_us * 2 > config->poll_max_us ? config->poll_max_us : queue->idle_us * 2;
    }
    int64_t jitter = (int64_t)(rng_next(&queue->rng) % (uint64_t)(queue->idle_us / 4 + 1));
    queue->poll_at = instant_min(queue->poll_at, now + queue->idle_us - jitter); /* somebody may have woken it since */
}

static bool took_all(const struct claim *claim, const struct batch *batch, instant_us now)
{
    const struct claim_plan *plan = &claim->plan;
    for (const struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (lane->more)
            return false;
    return plan->locked < claim->round.keys && !plan->thin && !plan->truncated &&
           !claim->queue->ordering->type->pending(claim->queue->ordering, now);
}

/* Most of what a claim costs the database does not depend on what it brings, and who inserts pays for it. The more the
 * last ones have found, the more will have come for the next. A few events hardly hold the next claim up, and many that
 * come at once do not hold up what follows them. */
static int64_t worth_waiting_us(const struct queue_config *config, size_t events)
{
    int64_t most_us = config->poll_min_us * WAITS_MAX, wait_us = config->poll_min_us * (int64_t)events / EVENTS_A_WAIT;
    most_us = most_us < config->poll_max_us ? most_us : config->poll_max_us;
    return wait_us < most_us ? wait_us : most_us;
}

void pace_claimed(const struct claim *claim, const struct batch *batch, instant_us now)
{
    struct queue *queue = claim->queue;
    if (!claim->full)
        plan_poll(queue, batch->lane_count > 0, now);
    queue->pace_at = now;
    size_t before = queue->events_found;
    if (batch->event_count > 0)
        queue->events_found = batch->event_count;
    if (took_all(claim, batch, now))
        queue->pace_at += worth_waiting_us(queue->config, before < batch->event_count ? before : batch->event_count);
    queue->poll_at = queue->poll_at > queue->pace_at ? queue->poll_at : queue->pace_at;
}
