#include "relay/queue/pace.h"

#include "relay/base/lesser.h"
#include "relay/queue/holding.h"
#include "relay/queue/queue.h"

/* How many events come, by the claims' results: a sum in which each event counts less the longer ago it was. In
 * thousandths: rounded to whole events, a thousand claims a second would forget as many as come. */
#define SPAN_US (100 * MS_US)
#define EVENT_MILLI INT64_C(1000)
#define BURST_MILLI (64 * EVENT_MILLI) /* what comes at once counts as no more than comes already, and this */

/* From 1,500 events/s the next claim comes later: by poll.min for each 8 more events in the span. Events that come
 * meanwhile count as well: at 2,000 events/s a claim waits not for 12 ms, but for 25. */
#define FEW_MILLI (150 * EVENT_MILLI)
#define EVENTS_A_WAIT_MILLI (8 * EVENT_MILLI)
#define WAITS_MAX 25
#define COMING_MAX_MILLI (4000 * EVENT_MILLI)

/* For one: a claim that leases costs a second transaction, and what is leased takes its time anyway. */
#define LEASE_WAITS 2

static void plan_poll(struct queue *queue, bool found, instant_us now)
{
    const struct queue_config *config = queue->config;
    queue->pace.work_known = found;
    if (found) {
        queue->pace.idle_us = config->poll_min_us;
    } else {
        queue->metrics.empty_claims++;
        queue->pace.idle_us =
            queue->pace.idle_us * 2 > config->poll_max_us ? config->poll_max_us : queue->pace.idle_us * 2;
    }
    int64_t jitter = (int64_t)(rng_next(&queue->rng) % (uint64_t)(queue->pace.idle_us / 4 + 1));
    queue->pace.poll_at =
        instant_min(queue->pace.poll_at, now + queue->pace.idle_us - jitter); /* somebody may have woken it since */
}

static void count_found(struct queue *queue, int64_t events, instant_us now)
{
    int64_t lately_milli = queue->pace.coming_milli * SPAN_US / (SPAN_US + now - queue->pace.coming_at);
    lately_milli += lesser(events * EVENT_MILLI, lately_milli + BURST_MILLI);
    queue->pace.coming_milli = lesser(lately_milli, COMING_MAX_MILLI);
    queue->pace.coming_at = now;
}

/* Most of what a claim costs the database does not depend on what it brings, and who inserts pays for it. The more
 * come, the more the next one brings if it waits: until as many have come as it may take. */
static int64_t worth_waiting_us(const struct queue *queue, int64_t most)
{
    const struct queue_config *config = queue->config;
    int64_t over_milli = queue->pace.coming_milli - FEW_MILLI;
    if (over_milli <= 0)
        return 0;
    int64_t wait_us = config->poll_min_us * (holding_of_queue(queue)->commits_before_delivery ? LEASE_WAITS : 1);
    int64_t most_us = lesser(wait_us * WAITS_MAX, config->poll_max_us);
    int64_t full_us = SPAN_US * most * EVENT_MILLI / queue->pace.coming_milli;
    return lesser(wait_us * over_milli / EVENTS_A_WAIT_MILLI, lesser(most_us, full_us));
}

void pace_sent(struct queue *queue, bool full, int64_t most, instant_us now)
{
    if (!full)
        queue->pace.poll_at =
            INSTANT_NEVER; /* until the answer is here: one claim at a time asks when nothing is known */
    if (queue->pace.took_all)
        queue->pace.earliest_at =
            now + worth_waiting_us(queue, most); /* what comes meanwhile is as little for the claim beside it */
}

/* Counted from when the claim was sent, so that what it takes is not lost. Of the time before, nothing is saved up. */
static instant_us rate_at(const struct queue *queue, struct pace_claim claim)
{
    int64_t rate = queue->config->rate;
    return rate > 0 ? claim.sent_at + claim.events * SECOND_US / rate : 0;
}

void pace_claimed(struct queue *queue, struct pace_claim claim, instant_us now)
{
    if (!claim.full)
        plan_poll(queue, claim.found, now);
    count_found(queue, claim.events, now);
    queue->pace.took_all = claim.found && claim.took_all;
    queue->pace.earliest_at = now + (queue->pace.took_all ? worth_waiting_us(queue, claim.most) : 0);
    instant_us rate = rate_at(queue, claim);
    queue->pace.earliest_at = queue->pace.earliest_at > rate ? queue->pace.earliest_at : rate;
    queue->pace.poll_at = queue->pace.poll_at > queue->pace.earliest_at ? queue->pace.poll_at : queue->pace.earliest_at;
}

void pace_peeked(struct queue *queue, bool news, instant_us now)
{
    if (!news)
        return;
    queue->pace.idle_us = queue->config->poll_min_us;
    queue->pace.poll_at = now;
}

void pace_wake(struct queue *queue, instant_us now)
{
    queue->pace.poll_at = instant_min(queue->pace.poll_at, now);
    queue->pace.claim_by = instant_min(queue->pace.claim_by, now); /* there is something: no need to ask first */
    queue->side_requests.found_empty = false;
    queue->side_requests.answer_outdated = true;
}
