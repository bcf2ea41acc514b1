#include "relay/queue/pace.h"

#include "relay/base/lesser.h"
#include "relay/queue/queue.h"

/* So long after an event the next look is soon. Rarer events are announced where they can be: see rest.h. */
#define OFTEN_US (60 * MS_US)

/* Half the events wait for the next claim no longer than half of this; the rest of `latency` is for the claim itself.
 */
static int64_t between_claims_us(const struct queue *queue)
{
    return lesser(queue->config->latency_us * 7 / 5, queue->config->poll_max_us);
}

static void plan_poll(struct queue *queue, struct pace_claim claim, instant_us now)
{
    const struct queue_config *config = queue->config;
    struct pace *pace = &queue->pace;
    pace->work_known = claim.found && pace->found; /* one by itself is no reason to expect another */
    pace->found = claim.found;
    if (claim.found) {
        pace->idle_us = config->latency_us;
        pace->found_at = now;
        pace_poll_by(pace, claim.sent_at + between_claims_us(queue));
        return;
    }
    queue->metrics.empty_claims++;
    pace_rest(queue, now);
}

void pace_sent(struct queue *queue, bool full, instant_us now)
{
    if (!full)
        queue->pace.poll_at =
            INSTANT_NEVER; /* until the answer is here: one claim at a time asks when nothing is known */
    if (queue->pace.took_all)
        queue->pace.earliest_at = now + between_claims_us(queue); /* for the claim beside it, too */
}

/* Counted from when the claim was sent, so that what it takes is not lost. Of the time before, nothing is saved up. */
static instant_us rate_at(const struct queue *queue, struct pace_claim claim)
{
    int64_t rate = queue->config->rate;
    return rate > 0 ? claim.sent_at + claim.events * SECOND_US / rate : 0;
}

void pace_claimed(struct queue *queue, struct pace_claim claim, instant_us now)
{
    struct pace *pace = &queue->pace;
    if (!claim.full)
        plan_poll(queue, claim, now);
    pace->took_all = claim.took_all;
    pace->finds += claim.found;
    instant_us next_at = pace->took_all ? claim.sent_at + between_claims_us(queue) : now, rate = rate_at(queue, claim);
    pace->earliest_at = next_at > rate ? next_at : rate;
    pace->poll_at = pace->poll_at > pace->earliest_at ? pace->poll_at : pace->earliest_at;
}

void pace_rest(struct queue *queue, instant_us now)
{
    struct pace *pace = &queue->pace;
    bool announced = queue->rest.state == REST_ROUSED, often = now < pace->found_at + OFTEN_US && !announced;
    pace->idle_us = often ? between_claims_us(queue) : lesser(pace->idle_us * 2, queue->config->poll_max_us);
    int64_t jitter = (int64_t)(rng_next(&queue->rng) % (uint64_t)(pace->idle_us / 4 + 1));
    pace_poll_by(pace, now + pace->idle_us - jitter); /* somebody may have woken it since */
}

void pace_peeked(struct queue *queue, bool news, instant_us now)
{
    if (news) /* which a claim may not get: the wait is shorter only when it has found something */
        queue->pace.poll_at = queue->pace.claim_by = now;
}

void pace_wake(struct queue *queue, instant_us now)
{
    if (!queue->pace.found) /* a claim that found nothing holds up no other */
        queue->pace.earliest_at = instant_min(queue->pace.earliest_at, now);
    queue->pace.idle_us = queue->config->latency_us; /* the first claim may be a moment too early */
    queue->pace.poll_at = instant_min(queue->pace.poll_at, now);
    queue->pace.claim_by = instant_min(queue->pace.claim_by, now); /* there is something: no need to ask first */
    queue->side_requests.found_empty = false;
    queue->side_requests.answer_outdated = true;
}
