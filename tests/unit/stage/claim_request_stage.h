/* tests/unit/stage/claim_request_stage.h -- a queue with two claims, for what a claim asks for. */
#ifndef TESTS_UNIT_CLAIM_REQUEST_STAGE_H
#define TESTS_UNIT_CLAIM_REQUEST_STAGE_H

#include "relay/claim/claim_request.h"
#include "relay/settle/round.h"
#include "tests/unit/stage/hand_made.h"

#define NOW (10 * SECOND_US)

static struct stage stage;
static struct claim claims[2]; /* the stage's own is the first */

static struct sink sink;
static struct outlet outlet;

static void set_up(void)
{
    stage_init(&stage, "there");
    struct queue *queue = &stage.queue;
    keyset_done(&queue->keys.more);
    keyset_init(&queue->keys.more, 4096);
    for (size_t i = 0; i < 2; i++) {
        claims[i] = (struct claim){.queue = queue, .index = i};
        keyset_init(&claims[i].held, 16);
        round_begin(&claims[i].round);
        claims[i].arriving = batch_new(1 << 20, queue, &claims[i]);
    }
    stage_claims(&stage, claims, 2);
    outlet.sink = &sink;
    sink.traits = SINK_KEEPS_KEY_ORDER;
    queue->outlet = &outlet;
    queue->claiming.keys_locked = 0;
    stage.config.max_events_per_key = 1000;
}

static void tear_down(void)
{
    for (size_t i = 0; i < 2; i++) {
        stage_free_batches(&claims[i].batches);
        keyset_done(&claims[i].held);
        round_done(&claims[i].round);
        batch_free(claims[i].arriving);
    }
    stage_done(&stage);
}

static inline struct batch *batch_of(struct claim *claim)
{
    struct batch *batch = batch_new(16 << 20, claim->queue, claim);
    batch->next = claim->batches;
    claim->batches = batch;
    return batch;
}

static inline struct lane *lane_of(struct claim *claim, const char *key)
{
    return stage_event(batch_of(claim), 1, key)->lane;
}

static void follow(const char *key, const struct claim *owner)
{
    ck_assert(keyset_put(&stage.queue.keys.more, span_of(key), span_hash(span_of(key)), 0, owner));
}

static inline bool has(const struct span *keys, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (span_equal(keys[i], span_of(key)))
            return true;
    return false;
}

static inline void miss_ids(struct claim *claim, const char *key, int64_t low, int64_t high)
{
    static struct found_key missed;
    missed = (struct found_key){span_of(key), {low, high}};
    claim->plan = (struct claim_plan){.missed = {&missed, 1}};
    claim_follow_missed(claim, NOW);
}

static inline void miss(struct claim *claim, const char *key)
{
    miss_ids(claim, key, 1, 0);
}

#endif
