#include "relay/hold/lease.h"

#include "ordering/result.h"
#include "relay/base/fault_point.h"
#include "relay/deliver/deliver.h"
#include "relay/deliver/outlet.h"
#include "relay/postgres/db.h"
#include "relay/queue/batch.h"
#include "relay/queue/queue.h"
#include "relay/queue/report.h"
#include "relay/settle/blocked.h"
#include "relay/settle/round.h"

#include <inttypes.h>
#include <stdio.h>

#define RENEW_AGAIN_US SECOND_US /* after a renewal that failed, or sooner where terms are short */

static int64_t term_us(const struct queue *queue)
{
    return queue->config->lease_us;
}

/* When a renewal that has failed is sent again. */
static int64_t again_us(const struct queue *queue)
{
    int64_t part_us = term_us(queue) / 12;
    return part_us < RENEW_AGAIN_US ? part_us : RENEW_AGAIN_US;
}

/* Of a term that was asked for at `leased_at`: no more renewal would come in time. Deliveries that are called back now
 * have ended when the term does. */
static instant_us over_at(const struct queue *queue, instant_us leased_at)
{
    return leased_at + term_us(queue) - again_us(queue);
}

static bool is_sure(const struct queue *queue, instant_us leased_at, instant_us now)
{
    return now - leased_at < term_us(queue) * 2 / 3;
}

static int backend_pid(const struct queue *queue)
{
    return queue->config->lease_owner == LEASE_BACKEND ? db_backend_pid(queue->side_status.db) : 0;
}

int64_t lease_room(const struct queue *queue)
{
    size_t lanes = 0, blocked = 0, bytes = 0;
    size_t bytes_max = (size_t)queue->config->max_batch_bytes * (HELD_BYTES_FACTOR - 1);
    struct holds_walk walk = holds_walk(&queue->holds);
    for (const struct batch *batch; (batch = holds_next(&walk));) {
        lanes += batch->unsettled - batch->blocked; /* these have no place in the sink any more */
        blocked += batch->blocked;
        bytes += batch->hold == HOLD_LEASE ? batch->bytes : 0;
    }
    size_t places = outlet_places(queue->outlet);
    return places > lanes && !blocked_is_full(queue, blocked) && bytes <= bytes_max ? (int64_t)(places - lanes) : 0;
}

/* Version 4, as gen_random_uuid() has them. */
static void draw_token(struct queue *queue, struct lane *lane)
{
    uint64_t high = rng_next(&queue->rng), low = rng_next(&queue->rng);
    snprintf(lane->token, sizeof lane->token, "%08" PRIx64 "-%04" PRIx64 "-4%03" PRIx64 "-%04" PRIx64 "-%012" PRIx64,
             high >> 32, high >> 16 & 0xffff, high & 0xfff, (low >> 48 & 0x3fff) | 0x8000, low & 0xffffffffffff);
}

/* Still ours, though its lease has ended with our own backend that owned it. Events under way get their verdicts, and
 * the renewal names the next owner; a second lane of the key would send them all again. */
static bool is_held(const struct queue *queue, const struct lane *lane, instant_us sent_at)
{
    if (!lane->waited)
        return false;
    for (const struct batch *batch = queue->holds.leased; batch; batch = batch->next)
        for (const struct lane *earlier = batch_chain(batch, lane->hash); earlier; earlier = earlier->chain_next)
            if (earlier->hold != HOLD_LOST && lane_repeats(lane, earlier, sent_at))
                return true;
    return false;
}

static void add_lease(struct lease_list *list, struct queue *queue, struct lane *lane)
{
    size_t place = list->count++;
    draw_token(queue, lane);
    list->keys[place] = lane->key;
    list->ids[place] = lane->first ? lane->first->event.id : lane->waited_id;
    list->failures[place] = lane->first ? lane->first->event.attempt - 1 : 0;
    list->tokens[place] = span_of(lane->token);
}

bool lease_add(struct queue *queue, struct batch *batches, struct round *round, struct db *db, struct error *err)
{
    struct arena *arena = round->arena;
    size_t lanes = 0;
    for (const struct batch *batch = batches; batch; batch = batch->next)
        lanes += batch->lane_count;
    round->lock_count = 0;
    if (lanes == 0)
        return true;
    FAULT_POINT("claim.lease");
    struct lease_list list = {.keys = arena_array(arena, lanes, sizeof *list.keys),
                              .ids = arena_array(arena, lanes, sizeof *list.ids),
                              .failures = arena_array(arena, lanes, sizeof *list.failures),
                              .tokens = arena_array(arena, lanes, sizeof *list.tokens)};
    for (struct batch *batch = batches; batch; batch = batch->next)
        for (struct lane *lane = batch->lanes; lane; lane = lane->next)
            if (!is_held(queue, lane, batch->sent_at))
                add_lease(&list, queue, lane);
    round->lock_count = list.count;
    if (list.count == 0)
        return true;
    round->settle_end = 1;
    struct statement st = queue->ordering->type->grant(queue->ordering, &list, backend_pid(queue), arena);
    return db_send(db, &st, err);
}

bool lease_check(const struct round *round, const PGresult *res, struct error *err)
{
    int64_t count = 0;
    size_t due = round->lock_count;
    if (PQntuples(res) == 1 && result_bigint(res, 0, 0, &count) && count == (int64_t)due)
        return true;
    return error_set(err, ERROR_INTERNAL, "a claim has leased %" PRId64 " of its %zu keys", count, due);
}

static void begin_terms(struct batch *batch, instant_us leased_at)
{
    batch->leased_at = leased_at;
    batch->unrenewed = 0;
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        lane->leased_at = leased_at;
}

/* From the claim to the queue. */
static struct batch *hand_over(struct queue *queue, struct batch **batches, instant_us sent_at)
{
    struct batch *batch = holds_pop(batches);
    batch_hold(batch, HOLD_LEASE);
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        lane_hold(lane, HOLD_LEASE);
    begin_terms(batch, sent_at);
    holds_push(&queue->holds.leased, batch);
    return batch;
}

/* The key's new holder decides about its events. */
static void lose(struct lane *lane, instant_us now)
{
    FAULT_POINT("lease.lost");
    lane_hold(lane, HOLD_LOST);
    deliver_cancel(lane);
    if (lane->state == LANE_BLOCKED)
        lane_move(lane, LANE_FINISHED);
    deliver_stop(lane, 0, now);
    lane->outcome = LANE_RELEASED;
    lane->release_us = 0;
    lane->acked = 0;
    lane->unacked = lane->failed = lane->refused = NULL;
    lane->progressed = false;
}

static void lose_what_has_none(struct batch *batch, instant_us now)
{
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (!lane->token[0])
            lose(lane, now);
}

void lease_abandon(struct queue *queue, struct batch **batches, instant_us sent_at, instant_us now)
{
    while (*batches) {
        struct batch *batch = hand_over(queue, batches, sent_at);
        lose_what_has_none(batch, now);
        for (struct lane *lane = batch->lanes; lane; lane = lane->next)
            if (lane->hold != HOLD_LOST)
                deliver_stop(lane, 0, now);
    }
}

void lease_begin(struct queue *queue, struct batch **batches, instant_us sent_at, instant_us now)
{
    if (queue->leases.owner_lost_at >= sent_at) {
        lease_abandon(queue, batches, sent_at, now);
        return;
    }
    while (*batches) {
        struct batch *batch = hand_over(queue, batches, sent_at);
        lose_what_has_none(batch, now);
        batch->arrived_next = queue->arrived;
        queue->arrived = batch;
    }
}

bool lease_is_sure(const struct queue *queue, const struct batch *batch, instant_us now)
{
    return is_sure(queue, batch->leased_at, now);
}

/* True when an event of the lane is under way. */
static bool call_back(struct lane *lane)
{
    deliver_cancel(lane);
    lane_hold(lane, HOLD_CALLED_BACK);
    return lane->in_flight > 0;
}

void lease_hold(struct queue *queue, instant_us now)
{
    size_t called_back = 0;
    for (struct batch *batch = queue->holds.leased; batch; batch = batch->next)
        for (struct lane *lane = lease_is_sure(queue, batch, now) ? NULL : batch->lanes; lane; lane = lane->next) {
            if (lane->state == LANE_OPEN && !is_sure(queue, lane->leased_at, now))
                deliver_stop(lane, 0, now);
            if (lane->hold == HOLD_LEASE && now >= over_at(queue, lane->leased_at))
                called_back += call_back(lane);
        }
    if (called_back > 0)
        report_leases_over(queue, called_back);
}

/* The earliest term of a batch with events to be called back. Every turn of the loop asks for it, and mostly all lanes
 * have one term. */
static instant_us earliest_term(const struct batch *batch)
{
    const struct lane *ours = batch->lanes;
    while (batch->unrenewed == 0 && ours && ours->hold == HOLD_LOST)
        ours = ours->next;
    if (batch->unrenewed == 0)
        return ours && ours->hold == HOLD_LEASE ? batch->leased_at : INSTANT_NEVER;
    instant_us earliest = INSTANT_NEVER;
    for (const struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (lane->state <= LANE_STOPPED && lane->hold == HOLD_LEASE)
            earliest = instant_min(earliest, lane->leased_at);
    return earliest;
}

instant_us lease_over_at(const struct queue *queue)
{
    instant_us earliest = INSTANT_NEVER;
    for (const struct batch *batch = queue->holds.leased; batch; batch = batch->next)
        if (batch->open > 0)
            earliest = instant_min(earliest, earliest_term(batch));
    return earliest == INSTANT_NEVER ? INSTANT_NEVER : over_at(queue, earliest);
}

instant_us lease_due_at(const struct queue *queue)
{
    if (!queue->holds.leased)
        return INSTANT_NEVER;
    instant_us at = queue->leases.maybe_lost ? 0 : INSTANT_NEVER;
    for (const struct batch *batch = queue->holds.leased; batch; batch = batch->next)
        at = instant_min(at, batch->leased_at + term_us(queue) / 3);
    return at > queue->leases.renew_at ? at : queue->leases.renew_at;
}

bool lease_is_due(const struct queue *queue, instant_us now)
{
    return now >= lease_due_at(queue);
}

static bool is_ours(const struct lane *lane)
{
    return lane->state < LANE_SETTLED && lane->hold != HOLD_LOST;
}

struct statement lease_renewal(struct queue *queue, struct arena *arena, instant_us now)
{
    size_t lanes = 0, count = 0;
    for (const struct batch *batch = queue->holds.leased; batch; batch = batch->next)
        lanes += batch->unsettled;
    struct span *tokens = arena_array(arena, lanes, sizeof *tokens);
    for (struct batch *batch = queue->holds.leased; batch; batch = batch->next) {
        batch->renewed_at = now;
        for (struct lane *lane = batch->lanes; lane; lane = lane->next) {
            lane->unrenewed = false;
            if (is_ours(lane))
                tokens[count++] = span_of(lane->token);
        }
    }
    return queue->ordering->type->renew(queue->ordering, tokens, count, backend_pid(queue), arena);
}

/* Sent, and maybe received: what was answered of it, or will be, comes too late. */
static bool is_under_way(const struct lane *lane)
{
    return lane->in_flight + lane->acked > 0 || lane->failed;
}

static struct lane *find_lane(const struct queue *queue, struct span token)
{
    for (const struct batch *batch = queue->holds.leased; batch; batch = batch->next)
        for (struct lane *lane = batch->lanes; lane; lane = lane->next)
            if (is_ours(lane) && span_equal(span_of(lane->token), token))
                return lane;
    return NULL;
}

void lease_take(struct queue *queue, const PGresult *res, instant_us now)
{
    size_t lost = 0;
    for (int row = 0; row < PQntuples(res); row++) {
        struct lane *lane = find_lane(queue, result_span(res, row, 0));
        if (!lane)
            continue;
        lane->unrenewed = result_bool(res, row, 1);
        if (lane->unrenewed)
            continue;
        lost += is_under_way(lane);
        lose(lane, now);
    }
    if (lost > 0) {
        queue->metrics.leases_lost += lost;
        report_leases_lost(queue, lost);
    }
}

static void renew_batch(struct batch *batch)
{
    batch->leased_at = batch->renewed_at;
    batch->unrenewed = 0;
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (lane->unrenewed && is_ours(lane)) {
            batch->unrenewed++;
            batch->leased_at = instant_min(batch->leased_at, lane->leased_at);
        } else {
            lane->leased_at = batch->renewed_at;
            if (lane->hold == HOLD_CALLED_BACK)
                lane_hold(lane, HOLD_LEASE);
        }
}

void lease_renewed(struct queue *queue, bool failed, instant_us now)
{
    size_t unrenewed = 0;
    for (struct batch *batch = failed ? NULL : queue->holds.leased; batch; batch = batch->next)
        if (batch->renewed_at > batch->leased_at) {
            renew_batch(batch);
            unrenewed += batch->unrenewed;
        }
    queue->leases.renew_at = failed || unrenewed > 0 ? now + again_us(queue) : 0;
    queue->leases.maybe_lost = queue->leases.maybe_lost && failed;
    if (failed)
        return;
    if (unrenewed > 0 && queue->leases.unrenewed == 0)
        report_leases_held(queue, unrenewed);
    queue->leases.unrenewed = unrenewed;
}

void lease_maybe_lost(struct queue *queue, instant_us now)
{
    queue->leases.maybe_lost = true;
    queue->leases.renew_at = now;
}

void lease_backend_lost(struct queue *queue, instant_us now)
{
    if (queue->config->lease_owner != LEASE_BACKEND)
        return;
    queue->leases.owner_lost_at = now;
    for (struct batch *batch = queue->holds.leased; batch; batch = batch->next)
        begin_terms(batch, now - term_us(queue));
    lease_hold(queue, now);
}

void lease_backend_up(struct queue *queue, instant_us now)
{
    queue->leases.renew_at = now;
}
