/* relay/queue/queue.h -- one queue at work: the parts that claim, route, deliver and settle share.
 *
 * relay/claim/claim.c fills batches, route.c finds their destinations, deliver.c sends them, settle.c writes down their
 * ends. Nothing outside relay/ sees this. */
#pragma once

#include "ordering/ordering.h"
#include "relay/base/backoff.h"
#include "relay/base/log.h"
#include "relay/config/config.h"
#include "relay/queue/batch.h"
#include "relay/queue/holds.h"
#include "relay/queue/metrics.h"
#include "relay/queue/queue_parts.h"
#include "relay/queue/side_requests.h"

struct claim;
struct order_watch;
struct outlet;
struct route;
struct side;
struct table;
struct upkeep;

/* Who may write a field stands above it, or above its struct in queue_parts.h, side_requests.h, holds.h or metrics.h.
 * Lint checks it (tests/lint/owners.py). Everybody reads. */
struct queue {
    /* Written by relay/queue_open.c only: what the queue is. */
    const struct queue_config *config;
    const struct config *process;
    const struct log *log;
    struct table *table;
    struct queue_sql sql;
    struct ordering *ordering;
    struct route *route;
    struct outlet *outlet;
    struct order_watch *watch;
    struct claim *claims;
    size_t claim_count;

    /* Written by relay/side/ only: what nobody else looks into. */
    struct side *side;
    struct upkeep *upkeep;

    struct side_status side_status;
    struct side_requests side_requests;
    struct wakeups wakeups;
    struct pause pause;
    struct window window;
    struct claiming claiming;
    struct holds holds;
    struct key_book keys;
    struct pace pace;
    struct rest rest;
    struct rest_answer rest_answer;
    struct ahead ahead;
    struct refusal refusal;
    struct blocked blocked;
    struct leases leases;
    struct unreadable unreadable;
    struct metrics metrics;

    /* Written by relay/claim/, relay/hold/lease.c, relay/route/route.c only. */
    struct batch *arrived; /* claimed, not routed; linked by arrived_next */

    /* Written by relay/deliver/deliver.c only. */
    instant_us wasted_until; /* claims for destinations that are down cost the database time; each moves this on */

    /* Written by relay/claim/, relay/side/ only. */
    uint64_t trouble; /* see report_unreachable() */

    /* Written by relay/relay.c only. */
    struct queue *next; /* gets what was delivered; NULL: there is none */
    bool stopping;

    /* Written by everybody: each draw changes it. */
    struct rng rng;
};

static inline struct queue *lane_queue(const struct lane *lane)
{
    return lane->batch->queue;
}

/* Rows are known that cannot be read: ordering_guard() goes ahead of what may look at them. */
static inline bool queue_is_guarded(const struct queue *queue)
{
    return queue->unreadable.count > 0;
}

/* A claim has read that the queue is paused: nothing more is claimed or sent. */
static inline void queue_found_paused(struct queue *queue, instant_us now)
{
    queue->pause.on = true;
    queue->pause.found_at = now;
}
