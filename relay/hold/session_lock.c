#include "relay/hold/session_lock.h"

#include "ordering/result.h"
#include "relay/base/fault_point.h"
#include "relay/queue/queue.h"

#include <inttypes.h>

bool session_lock_is_needed(const struct batch *batch)
{
    return batch->open + batch->blocked + batch->finished > 0;
}

/* Some of its lanes are held by the session, or are to be. */
static bool is_listed(const struct batch *batch)
{
    return batch->hold == HOLD_SESSION || session_lock_is_needed(batch);
}

static struct key_list list_new(const struct batch *batches, struct arena *arena)
{
    size_t lanes = 0;
    for (const struct batch *batch = batches; batch; batch = batch->next)
        lanes += is_listed(batch) ? batch->lane_count : 0;
    return (struct key_list){.keys = arena_array(arena, lanes, sizeof(struct span)),
                             .keyless_ids = arena_array(arena, lanes, sizeof(int64_t))};
}

static void list_lane(struct key_list *list, const struct lane *lane)
{
    if (lane->key.data)
        list->keys[list->key_count++] = lane->key;
    else
        list->keyless_ids[list->keyless_count++] = lane_keyless_id(lane);
}

/* Lanes of `batch` that are not settled, but may be on their way, or for good only when the transaction commits: should
 * that fail, their locks are still there. */
static void list_unsettled(struct key_list *list, const struct batch *batch)
{
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (lane->state != LANE_SETTLED || lane->start) {
            list_lane(list, lane);
            if (lane->hold != HOLD_SESSION)
                lane_hold(lane, HOLD_SESSION);
        }
}

static void list_settled(struct key_list *list, const struct batch *batch)
{
    for (const struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (lane->hold == HOLD_SESSION && lane->state >= LANE_SETTLING)
            list_lane(list, lane);
}

bool session_lock_add(const struct queue *queue, struct batch *batches, struct round *round, struct db *db,
                      struct error *err)
{
    struct ordering *ordering = queue->ordering;
    struct key_list list = list_new(batches, round->arena);
    for (const struct batch *batch = batches; batch; batch = batch->next)
        if (batch->hold != HOLD_SESSION && session_lock_is_needed(batch))
            list_unsettled(&list, batch);
    round->lock_count = list.key_count + list.keyless_count;
    if (round->lock_count == 0)
        return true;
    FAULT_POINT("claim.lock");
    round->settle_end = 1;
    struct statement st = ordering->type->hold(ordering, &list, true, round->arena);
    return db_send(db, &st, err);
}

bool session_lock_add_free(const struct queue *queue, struct batch *batches, struct round *round, struct db *db,
                           struct error *err)
{
    struct ordering *ordering = queue->ordering;
    struct key_list list = list_new(batches, round->arena);
    for (const struct batch *batch = batches; batch; batch = batch->next)
        if (is_listed(batch))
            list_settled(&list, batch);
    round->unlock_count = list.key_count + list.keyless_count;
    if (round->unlock_count == 0)
        return true;
    FAULT_POINT("claim.free");
    struct statement st = ordering->type->hold(ordering, &list, false, round->arena);
    return db_send(db, &st, err);
}

static bool is_complete(const PGresult *res, size_t due, const char *done, struct error *err)
{
    int64_t count = 0;
    if (PQntuples(res) == 1 && result_bigint(res, 0, 0, &count) && count == (int64_t)due)
        return true;
    return error_set(err, ERROR_INTERNAL, "the session has %s %" PRId64 " of %zu locks of its keys", done, count, due);
}

bool session_lock_taken(struct batch *batches, const struct round *round, const PGresult *res, struct error *err)
{
    if (!is_complete(res, round->lock_count, "taken", err))
        return false;
    for (struct batch *batch = batches; batch; batch = batch->next)
        if (batch->hold != HOLD_SESSION && session_lock_is_needed(batch))
            batch_hold(batch, HOLD_SESSION);
    return true;
}

bool session_lock_freed(const struct round *round, const PGresult *res, struct error *err)
{
    return is_complete(res, round->unlock_count, "freed", err);
}

void session_lock_settled(struct batch *batches)
{
    for (struct batch *batch = batches; batch; batch = batch->next)
        for (struct lane *lane = batch->lanes; lane; lane = lane->next)
            if (lane->hold == HOLD_SESSION && lane->state == LANE_SETTLED)
                lane_hold(lane, HOLD_FREED);
}
