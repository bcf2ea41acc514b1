/* relay/queue/pace.h -- when a queue is claimed from again.
 *
 * Most of what a claim costs the database does not depend on how many events it brings. So a claim that took all there
 * was is followed by the next one so late that half the events are claimed within `latency`; one that left something,
 * at once. Behind a claim that found nothing the looks at the table follow each other as claims do, because the next
 * event may be near; when nothing has come for a while, each is twice as late as the one before, up to `poll.max`. With
 * a rate, what a claim brings has its time before the next one. */
#pragma once

#include "relay/base/clock.h"
#include "relay/queue/queue_parts.h"

#include <stdbool.h>
#include <stdint.h>

struct queue;

/* The next look at the table is then, or at the latest then. */
static inline void pace_poll_at(struct pace *pace, instant_us at)
{
    pace->poll_at = at;
}

static inline void pace_poll_by(struct pace *pace, instant_us at)
{
    pace->poll_at = instant_min(pace->poll_at, at);
}

/* The result of a claim. */
struct pace_claim {
    instant_us sent_at;
    int64_t events;
    bool found;    /* it has locked keys of events */
    bool took_all; /* no event is known that it has left */
    bool full;     /* it has asked for keys by name alone */
};

/* A claim is on its way. */
void pace_sent(struct queue *queue, bool full, instant_us now);

/* Sets poll_at and earliest_at. */
void pace_claimed(struct queue *queue, struct pace_claim claim, instant_us now);

/* A look has found nothing: the next one is later. */
void pace_rest(struct queue *queue, instant_us now);

/* The answer of the side connection to who asks before it claims: see peek.h. */
void pace_peeked(struct queue *queue, bool news, instant_us now);

/* There is something to claim: it looks at once. */
void pace_wake(struct queue *queue, instant_us now);
