/* tests/unit/stage/hand_made.h -- a queue and its batches made by hand, for tests without a database.
 *
 *   stage_init -> stage_batch, stage_event* -> stage_route -> ... -> stage_done */
#ifndef TESTS_UNIT_HAND_MADE_H
#define TESTS_UNIT_HAND_MADE_H

#include "relay/claim/claim_state.h"
#include "relay/deliver/outlet.h"
#include "relay/queue/key_book.h"
#include "relay/queue/order_watch.h"
#include "relay/queue/queue.h"
#include "relay/queue_open.h"
#include "relay/route/destination.h"
#include "relay/side/side_state.h"
#include "relay/side/upkeep_state.h"
#include "relay/table/table.h"

#include <check.h>

/* A strategy that only notes what is given back. */
struct noting_ordering {
    struct ordering ordering;
    struct id_range released;
    instant_us released_at;
    size_t released_count;
};

#define STAGE_CLAIMS_MAX 2

struct stage {
    struct log log;
    struct queue_config config;
    struct noting_ordering noting;
    struct claim claim;
    struct batch **held[STAGE_CLAIMS_MAX];
    bool offered[STAGE_CLAIMS_MAX];
    struct side side;
    struct upkeep upkeep;
    struct queue queue;
};

/* The connections that claim; before that it is stage->claim alone. */
static inline void stage_claims(struct stage *stage, struct claim *claims, size_t count)
{
    struct queue *queue = &stage->queue;
    queue->claims = claims;
    queue->claim_count = count;
    queue->holds.claimed = stage->held;
    queue->holds.claim_count = count;
    queue->claiming.offered = stage->offered;
    for (size_t i = 0; i < count; i++)
        stage->held[i] = &claims[i].batches;
}

static inline void note_released(struct ordering *o, int64_t lo, int64_t hi, instant_us at)
{
    struct noting_ordering *noting = (struct noting_ordering *)o;
    noting->released = (struct id_range){lo, hi};
    noting->released_at = at;
    noting->released_count++;
}

static const struct ordering_type noting_type = {.released = note_released};

static inline void stage_init(struct stage *stage, const char *destination)
{
    struct error err;
    *stage = (struct stage){.log = {.level = LOG_ERROR, .fd = -1}};
    stage->config = (struct queue_config){.retry_base_us = SECOND_US,
                                          .retry_max_us = 60 * SECOND_US,
                                          .poll_max_us = 500 * MS_US,
                                          .retry_attempts = 3,
                                          .on_exhausted = ON_EXHAUSTED_DEAD_LETTER};
    static char name[] = "orders";
    stage->config.name = name;
    stage->noting.ordering.type = &noting_type;
    struct queue *queue = &stage->queue;
    queue->config = &stage->config;
    queue->log = &stage->log;
    queue->ordering = &stage->noting.ordering;
    queue->watch = order_watch_new();
    queue->claiming.asking_since = INSTANT_NEVER;
    stage_claims(stage, &stage->claim, 1);
    queue->side = &stage->side;
    queue->upkeep = &stage->upkeep;
    static const char *const extra[] = {"column", NULL};
    queue->route = route_new(destination, extra, 1, &err);
    ck_assert_ptr_nonnull(queue->route);
    key_book_init(&queue->keys, 8, 8);
    stage->claim.queue = queue;
}

static inline void stage_free_batches(struct batch **list)
{
    for (struct batch *batch; (batch = *list);) {
        *list = batch->next;
        batch_free(batch);
    }
}

static inline void stage_done(struct stage *stage)
{
    struct queue *queue = &stage->queue;
    stage_free_batches(&stage->claim.batches);
    stage_free_batches(&queue->holds.orphans);
    key_book_done(&queue->keys);
    order_watch_free(queue->watch);
    route_free(queue->route);
}

/* Held by the claim, as if it had just arrived. */
static inline struct batch *stage_batch(struct stage *stage)
{
    struct batch *batch = batch_new(1 << 20, &stage->queue, &stage->claim);
    batch->next = stage->claim.batches;
    stage->claim.batches = batch;
    batch->arrived_next = stage->queue.arrived;
    stage->queue.arrived = batch;
    return batch;
}

static inline struct event event_of(int64_t id, const char *key)
{
    return (struct event){.id = id, .key = span_of(key), .type = span_of("paid"), .attempt = 1};
}

/* Returns its item. `key` NULL: an event without a key. */
static inline struct item *stage_event(struct batch *batch, int64_t id, const char *key)
{
    struct error err;
    struct span column = SPAN_LITERAL("c");
    struct event event = event_of(id, key);
    event.columns = &column;
    ck_assert_msg(batch_add(batch, &event, 1, &err), "%s", err.text);
    return batch->lanes_end->last;
}

static inline void stage_ack(struct lane *lane, size_t count)
{
    for (; count > 0; count--) {
        lane->unacked->delivery.verdict = VERDICT_ACKED;
        lane->unacked = lane->unacked->next;
        lane->acked++;
    }
}

/* As relay/deliver/deliver.c leaves a lane: `acked` more events acked, the next one failed unless all were. */
static inline void stage_finish(struct lane *lane, size_t acked, enum lane_outcome outcome)
{
    static struct error cause = {.kind = ERROR_REFUSED, .text = "refused"};
    stage_ack(lane, acked);
    lane->unsent = NULL;
    lane->state = LANE_FINISHED;
    lane->outcome = outcome;
    if (outcome > LANE_RELEASED) {
        lane->failed = lane->unacked;
        lane->failed->delivery.verdict = VERDICT_RETRY;
        lane->failed->delivery.cause = &cause;
        lane->delay_us = 3 * SECOND_US;
    }
    lane->batch->open--;
    lane->batch->finished++;
}

/* Events id to id + 2 of one key. */
static inline struct lane *stage_lane_of_three(struct batch *batch, int64_t id, const char *key)
{
    struct lane *lane = stage_event(batch, id, key)->lane;
    stage_event(batch, id + 1, key);
    stage_event(batch, id + 2, key);
    return lane;
}

static inline void stage_lose(struct stage *stage)
{
    while (stage->claim.batches) {
        struct batch *batch = stage->claim.batches;
        stage->claim.batches = batch->next;
        batch_hold(batch, HOLD_LOST);
        batch->next = stage->queue.holds.orphans;
        stage->queue.holds.orphans = batch;
    }
}

#endif
