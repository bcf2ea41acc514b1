#include "relay/claim_request.h"

#define BUSY_MAX 1024

struct request {
    struct claim_request claim;
    struct span keys[BUSY_MAX], follow[BUSY_MAX];
    int64_t solos[BUSY_MAX];
    bool overflow;
};

static void add_busy(struct request *request, const struct lane *lane)
{
    struct claim_request *claim = &request->claim;
    if (claim->busy_key_count == BUSY_MAX || claim->busy_solo_count == BUSY_MAX)
        request->overflow = true;
    else if (lane->key.data)
        request->keys[claim->busy_key_count++] = lane->key;
    else if (lane->last)
        request->solos[claim->busy_solo_count++] = lane->last->event.id;
}

static void add_busy_batches(struct request *request, const struct batch *batches)
{
    for (const struct batch *batch = batches; batch; batch = batch->next)
        for (const struct lane *lane = batch->lanes; lane; lane = lane->next)
            if (lane->state != LANE_SETTLED)
                add_busy(request, lane);
}

static bool is_busy(const struct request *request, struct span key)
{
    for (size_t i = 0; i < request->claim.busy_key_count; i++)
        if (span_equal(request->keys[i], key))
            return true;
    return false;
}

/* Moves followed keys into the request: those that are free, and those that this claim itself holds. */
static void add_followed(struct request *request, struct claim *claim, size_t max)
{
    struct keyset *follow = &claim->queue->follow;
    for (size_t i = follow->count; i-- > 0 && request->claim.follow_key_count < max;) {
        struct keyset_entry *entry = &follow->entries[i];
        if ((entry->owner && entry->owner != claim) || is_busy(request, entry->key))
            continue;
        request->follow[request->claim.follow_key_count++] = arena_copy(claim->round.arena, entry->key);
        keyset_remove(follow, i);
    }
}

/* With `holding`, the transaction goes on and its own unfinished keys must not be claimed again. */
static bool fill(struct request *request, struct claim *claim, bool holding, int64_t keys, instant_us now)
{
    struct queue *queue = claim->queue;
    memset(&request->claim, 0, sizeof request->claim);
    request->overflow = false;
    keyset_expire(&queue->avoid, now);
    for (size_t i = 0; i < queue->avoid.count; i++)
        request->keys[request->claim.busy_key_count++] = queue->avoid.entries[i].key;
    add_busy_batches(request, queue->orphans);
    if (holding)
        add_busy_batches(request, claim->batches);
    if (request->overflow)
        return false;
    request->claim.max_keys = keys;
    request->claim.busy_keys = request->keys;
    request->claim.busy_solos = request->solos;
    request->claim.follow_keys = request->follow;
    add_followed(request, claim, keys < 2 ? 1 : (size_t)keys / 2);
    return true;
}

const struct claim_request *claim_request_make(struct claim *claim, bool holding, int64_t keys, instant_us now,
                                               struct error *err)
{
    struct request *request = arena_alloc(claim->round.arena, sizeof *request);
    if (!fill(request, claim, holding, keys, now)) {
        error_set(err, ERROR_RESOURCE, "more than %d keys are busy; claiming goes on when some are done", BUSY_MAX);
        return NULL;
    }
    claim->followed = request->follow;
    claim->followed_count = request->claim.follow_key_count;
    return &request->claim;
}

static bool has_lane(const struct batch *batch, struct span key)
{
    for (const struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (span_equal(lane->key, key))
            return true;
    return false;
}

/* Keys that were asked for and may not have been looked at go back on the list. */
void claim_follow_again(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    for (size_t i = 0; i < claim->followed_count; i++) {
        struct span key = claim->followed[i];
        if (!has_lane(claim->arriving, key) && !keyset_put(&queue->follow, key, key_hash(key), now, NULL))
            queue->ordering->type->released(queue->ordering, SCAN_ID_MIN, SCAN_ID_MAX, now);
    }
}

/* One of our claims has this key: in a lane, or from an earlier lane of its open transaction. */
static bool holds(const struct claim *claim, struct span key, uint64_t hash, struct lane **ret_lane)
{
    *ret_lane = NULL;
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        for (struct lane *lane = batch->lanes; lane; lane = lane->next)
            if (lane->hash == hash && lane->state != LANE_SETTLED && span_equal(lane->key, key)) {
                *ret_lane = lane;
                return true;
            }
    for (size_t i = 0; i < claim->held.count; i++)
        if (claim->held.entries[i].hash == hash && span_equal(claim->held.entries[i].key, key))
            return true;
    return false;
}

static void follow_at(struct claim *holder, struct span key, instant_us now)
{
    struct queue *queue = holder->queue;
    uint64_t hash = key_hash(key);
    struct lane *lane;
    if (!holds(holder, key, hash, &lane))
        return;
    if (lane)
        lane->more = true; /* followed when the lane is settled */
    else if (!keyset_put(&queue->follow, key, hash, now, holder))
        queue->ordering->type->released(queue->ordering, SCAN_ID_MIN, SCAN_ID_MAX, now);
}

void claim_follow_missed(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    for (size_t i = 0; i < claim->plan.missed_key_count; i++)
        for (size_t c = 0; c < queue->claim_count; c++)
            if (&queue->claims[c] != claim)
                follow_at(&queue->claims[c], claim->plan.missed_keys[i], now);
}

void claim_note_held(struct claim *claim)
{
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        for (const struct lane *lane = batch->lanes; lane; lane = lane->next)
            if (lane->key.data && !keyset_put(&claim->held, lane->key, lane->hash, 0, NULL))
                return;
}

void claim_forget_held(struct claim *claim)
{
    while (claim->held.count > 0)
        keyset_remove(&claim->held, claim->held.count - 1);
    struct keyset *follow = &claim->queue->follow;
    for (size_t i = 0; i < follow->count; i++)
        if (follow->entries[i].owner == claim)
            follow->entries[i].owner = NULL;
}

bool claim_has_followed(const struct claim *claim)
{
    const struct keyset *follow = &claim->queue->follow;
    for (size_t i = 0; i < follow->count; i++)
        if (!follow->entries[i].owner || follow->entries[i].owner == claim)
            return true;
    return false;
}
