#include "relay/queue/batch.h"

#include <assert.h>
#include <inttypes.h>

struct batch *batch_new(size_t bytes_max, struct queue *queue, void *owner)
{
    struct arena *arena = arena_new();
    struct batch *batch = arena_alloc(arena, sizeof *batch);
    batch->arena = arena;
    batch->bytes_max = bytes_max;
    batch->queue = queue;
    batch->owner = owner;
    return batch;
}

void batch_free(struct batch *batch)
{
    if (batch)
        arena_free(batch->arena);
}

static size_t event_bytes(const struct event *event, size_t extra_columns)
{
    size_t bytes = sizeof(struct item) + event->key.size + event->type.size + event->payload.size +
                   event->headers.size + event->event_id.size + event->traceparent.size;
    for (size_t i = 0; i < extra_columns; i++)
        bytes += event->columns[i].size;
    return bytes;
}

/* The key that an event shares its lane by. */
static struct span key_of(const struct batch *batch, struct span key)
{
    return batch->keyless ? (struct span){NULL, 0} : key;
}

/* The lane that the next event of `key` belongs to; NULL: a new one. */
static struct lane *lane_of(const struct batch *batch, struct span key)
{
    struct lane *last = batch->lanes_end;
    bool same = last && key.data && last->key.data && span_equal(last->key, key);
    return same ? last : NULL;
}

/* `id` is of an event that has the lane for itself where there is no key. */
static uint64_t lane_hash(struct span key, int64_t id)
{
    return span_hash(key.data ? key : (struct span){(const char *)&id, sizeof id});
}

static struct lane *lane_add(struct batch *batch, struct span key, int64_t id)
{
    struct lane *lane = arena_alloc(batch->arena, sizeof *lane);
    lane->key = arena_copy(batch->arena, key);
    lane->hash = lane_hash(key, id);
    lane->batch = batch;
    if (batch->lanes_end)
        batch->lanes_end->next = lane;
    else
        batch->lanes = lane;
    batch->lanes_end = lane;
    struct lane **chain = &batch->chains[lane->hash % LANE_CHAINS];
    lane->chain_next = *chain;
    *chain = lane;
    batch->lane_count++;
    batch->unsettled++;
    batch->open++;
    return lane;
}

static void event_copy(struct arena *arena, struct event *to, const struct event *from, size_t extra_columns)
{
    *to = *from;
    to->type = arena_copy(arena, from->type);
    to->payload = arena_copy(arena, from->payload);
    to->headers = arena_copy(arena, from->headers);
    to->event_id = arena_copy(arena, from->event_id);
    to->traceparent = arena_copy(arena, from->traceparent);
    to->columns = extra_columns ? arena_array(arena, extra_columns, sizeof *to->columns) : NULL;
    for (size_t i = 0; i < extra_columns; i++)
        to->columns[i] = arena_copy(arena, from->columns[i]);
}

bool batch_add(struct batch *batch, const struct event *event, size_t extra_columns, struct error *err)
{
    struct lane *lane = lane_of(batch, key_of(batch, event->key));
    if (lane && lane->delayed)
        return true;
    if (lane && event->id <= lane->last->event.id)
        return error_set(err, ERROR_INTERNAL, "a claim returned event %" PRId64 " after event %" PRId64 " of one key",
                         event->id, lane->last->event.id);
    if (lane && batch->lane_max > 0 && lane->count >= batch->lane_max) {
        lane->more = true;
        return true;
    }
    size_t bytes = event_bytes(event, extra_columns) + batch->response_max;
    if (batch->spilled || (batch->event_count > 0 && batch->bytes + bytes > batch->bytes_max)) {
        batch->spilled = true;
        batch->spilled_bytes += bytes;
        if (lane)
            lane->more = true;
        return true;
    }
    if (!lane)
        lane = lane_add(batch, key_of(batch, event->key), event->id);
    struct item *item = arena_alloc(batch->arena, sizeof *item);
    event_copy(batch->arena, &item->event, event, extra_columns);
    item->event.key = batch->keyless ? arena_copy(batch->arena, event->key) : lane->key;
    item->lane = lane;
    if (lane->last)
        lane->last->next = item;
    else
        lane->first = lane->unsent = lane->unacked = item;
    lane->last = item;
    lane->count++;
    batch->event_count++;
    batch->bytes += bytes;
    return true;
}

/* The batch's count of the lanes in such a state; NULL: it has none. */
static size_t *count_of(struct batch *batch, enum lane_state state)
{
    switch (state) {
    case LANE_OPEN:
    case LANE_STOPPED:
        return &batch->open;
    case LANE_BLOCKED:
        return &batch->blocked;
    case LANE_FINISHED:
        return &batch->finished;
    case LANE_SETTLING:
    case LANE_SETTLED:
    case LANE_STATES:
        break;
    }
    return NULL;
}

void lane_move(struct lane *lane, enum lane_state to)
{
    struct batch *batch = lane->batch;
    assert(lane_life_has(lane->state, to));
    size_t *left = count_of(batch, lane->state), *entered = count_of(batch, to);
    if (left)
        --*left;
    if (entered)
        ++*entered;
    batch->unsettled += lane->state == LANE_SETTLED;
    batch->unsettled -= to == LANE_SETTLED;
    lane->state = to;
}

void lane_hold(struct lane *lane, enum hold to)
{
    assert(lane_life_has_hold(lane->hold, to));
    lane->hold = to;
}

void batch_hold(struct batch *batch, enum hold to)
{
    assert(lane_life_has_hold(batch->hold, to));
    batch->hold = to;
}

static struct lane *lane_add_finished(struct batch *batch, struct span key, int64_t id)
{
    struct lane *lane = lane_add(batch, key, id);
    lane->waited_id = id;
    lane->outcome = LANE_DELIVERED;
    lane_move(lane, LANE_FINISHED);
    return lane;
}

void batch_add_ended_wait(struct batch *batch, struct span key, int64_t id)
{
    struct lane *lane = lane_add_finished(batch, key, id);
    lane->waited = lane->progressed = true;
}

struct lane *batch_add_delayed(struct batch *batch, struct span key, int64_t id, int64_t delay_us)
{
    struct lane *lane = lane_of(batch, key_of(batch, key));
    if (batch->spilled || (lane && (lane->more || lane->delayed)))
        return NULL; /* what comes before it may have been left out */
    if (!lane)
        lane = lane_add_finished(batch, key_of(batch, key), id);
    lane->delayed = true;
    lane->waited_id = id;
    lane->delay_us = delay_us;
    lane->after_id = EVENT_NO_ID;
    return lane;
}

struct lane *batch_chain(const struct batch *batch, uint64_t hash)
{
    return batch->chains[hash % LANE_CHAINS];
}

struct lane *batch_find(const struct batch *batch, struct span key, uint64_t hash, enum lane_state last)
{
    for (struct lane *lane = batch_chain(batch, hash); lane; lane = lane->chain_next)
        if (lane->hash == hash && lane->state <= last && lane->key.data && span_equal(lane->key, key))
            return lane;
    return NULL;
}

int64_t lane_keyless_id(const struct lane *lane)
{
    return lane->last ? lane->last->event.id : lane->waited_id;
}

bool lane_repeats(const struct lane *lane, const struct lane *earlier, instant_us sent_at)
{
    if (lane->hash != earlier->hash || (earlier->state == LANE_SETTLED && earlier->settled_at < sent_at))
        return false;
    if (!lane->key.data)
        return !earlier->key.data && lane_keyless_id(lane) == lane_keyless_id(earlier);
    return earlier->key.data && span_equal(lane->key, earlier->key);
}

size_t batch_unsettled(const struct batch *batches)
{
    size_t n = 0;
    for (const struct batch *batch = batches; batch; batch = batch->next)
        n += batch->unsettled;
    return n;
}

bool batch_is_over(const struct batch *batch)
{
    if (batch->unsettled > 0)
        return false;
    for (const struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (lane->hold == HOLD_SESSION)
            return false;
    return true;
}
