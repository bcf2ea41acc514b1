#include "relay/settle/settle.h"

#include "relay/base/fault_point.h"
#include "relay/deliver/verdict_rule.h"
#include "relay/queue/holding.h"
#include "relay/queue/key_book.h"
#include "relay/queue/order_watch.h"
#include "relay/queue/queue.h"
#include "relay/queue/report.h"

#include <stdlib.h>

/* Sizes of the lists of one settlement. */
struct tally {
    size_t lanes, done;
};

/* A lane takes part when it is finished, or when its acked events may be settled ahead of its end. */
static bool takes_part(const struct lane *lane, bool prefixes)
{
    if (lane->settling > 0)
        return false; /* its prefix is on the way out of the table */
    return lane->state == LANE_FINISHED ||
           (prefixes && lane->state <= LANE_STOPPED && lane->acked > 0 && !lane->only_at_end);
}

static struct tally count(const struct batch *batches, bool prefixes)
{
    struct tally tally = {0};
    for (const struct batch *batch = batches; batch; batch = batch->next)
        for (const struct lane *lane = batch->finished || prefixes ? batch->lanes : NULL; lane; lane = lane->next)
            if (takes_part(lane, prefixes)) {
                tally.lanes++;
                tally.done += lane->acked;
            }
    return tally;
}

struct lists {
    int64_t *done, *keyless_ids;
    uint64_t *tids; /* of what is done */
    struct settle_failure *parked, *buried;
    struct span *responses; /* to what is done, where those go on; else NULL */
    struct span *keys;
    struct span *tokens, *moved, *released; /* of leases */
    int64_t *moved_ids;
    size_t room; /* for rows that are written */
};

static void add_failure(struct settlement *s, struct lists *lists, const struct lane *lane)
{
    const struct event *event = &lane->failed->event;
    struct settle_failure failure = {
        .id = event->id,
        .key = lane->key,
        .attempts = event->attempt,
        .delay_us = lane->outcome == LANE_CLOSED ? -1 : lane->delay_us,
        .after_id = EVENT_NO_ID,
        .why = span_of(lane->failed->delivery.cause->text),
    };
    if (lane->outcome == LANE_DEAD)
        lists->buried[s->buried_count++] = failure;
    else
        lists->parked[s->parked_count++] = failure;
}

/* All that was due of the key is done, and what comes next is not due. */
static bool is_delayed(const struct lane *lane)
{
    return lane->delayed && lane->outcome == LANE_DELIVERED;
}

/* The key waited and its head is settled now: its entry has to move on. A failure, or an event that is not due, writes
 * the entry anew instead. */
static bool is_resumed(const struct lane *lane)
{
    bool moved = lane->acked > 0 || lane->progressed || lane->outcome == LANE_DEAD;
    bool has_entry = lane->waited || lane->batch->hold == HOLD_LEASE;
    return has_entry && moved && lane->outcome != LANE_RETRY && lane->outcome != LANE_CLOSED && !is_delayed(lane);
}

static void add_resumed(struct settlement *s, struct lists *lists, const struct lane *lane)
{
    if (!is_resumed(lane))
        return;
    if (lane->key.data)
        lists->keys[s->resumed_key_count++] = lane->key;
    else
        lists->keyless_ids[s->resumed_keyless_count++] = lane_keyless_id(lane);
}

/* The lane's outcome, besides its acked events, has to be written down. */
static bool end_is_written(const struct lane *lane)
{
    return !lane_is_lost(lane) &&
           (lane->outcome > LANE_RELEASED || lane->batch->hold == HOLD_LEASE || is_resumed(lane) || is_delayed(lane));
}

/* Where there are leases. `next` is the first event of the lane that stays in the table for now. */
static void add_lease(struct settlement *s, struct lists *lists, const struct lane *lane, const struct item *next)
{
    if (!lists->tokens || lane->hold == HOLD_LOST)
        return;
    struct span token = span_of(lane->token);
    lists->tokens[s->token_count++] = token;
    if (lane->state != LANE_SETTLING && lane->settling > 0 && next) {
        lists->moved[s->moved_count] = token;
        lists->moved_ids[s->moved_count++] = next->event.id;
    } else if (lane->state == LANE_SETTLING && lane->outcome == LANE_RELEASED && !is_resumed(lane)) {
        lists->released[s->released_count++] = token;
    }
}

static void count_rows(struct settle_job *job, struct lane *lane, size_t row_count)
{
    if (row_count > 0 && job->row_count == 0)
        job->lane_of_first_row = lane;
    job->row_count += row_count;
}

/* Returns the first event that is not among them. */
static const struct item *add_acked(struct settle_job *job, struct lists *lists, struct lane *lane)
{
    struct settlement *s = &job->settlement;
    const struct item *item = lane->first;
    lane->settling = lane->acked < lists->room ? lane->acked : lists->room;
    for (size_t i = 0; i < lane->settling; i++, item = item->next) {
        if (lists->responses)
            lists->responses[s->done_count] = response_span(item->delivery.response);
        lists->tids[s->done_count] = item->event.tid;
        lists->done[s->done_count++] = item->event.id;
    }
    lists->room -= lane->settling;
    count_rows(job, lane, lane->settling);
    return item;
}

/* The delay was counted from the claim on, and what came before the event took its time. */
static int64_t delay_left_us(const struct lane *lane)
{
    int64_t past_us = lane->first ? lane->finished_at - lane->batch->sent_at : 0;
    if (lane->delay_us < 0)
        return lane->delay_us;
    return lane->delay_us > past_us ? lane->delay_us - past_us : 0;
}

static struct span reason_of(const struct lane *lane)
{
    return lane->unreadable && lane->failures > 0 ? span_of(lane->unreadable->text) : SPAN_LITERAL("");
}

static void add_end(struct settle_job *job, struct lists *lists, struct lane *lane)
{
    struct settlement *s = &job->settlement;
    if (lane->state != LANE_FINISHED || lane->settling < lane->acked)
        return;
    if (lane->refused && lane->batch->hold != HOLD_LOST)
        verdict_rule_stuck(lane, lane_queue(lane)->config, &lane_queue(lane)->rng);
    size_t end = end_is_written(lane);
    if (end > lists->room)
        return; /* another time */
    lists->room -= end;
    count_rows(job, lane, end);
    lane_move(lane, LANE_SETTLING);
    if (lane->batch->hold == HOLD_LOST)
        return; /* without the lock only this is certain: what was acked is done */
    if (lane->outcome > LANE_RELEASED)
        add_failure(s, lists, lane);
    if (is_delayed(lane))
        lists->parked[s->parked_count++] = (struct settle_failure){.id = lane->waited_id,
                                                                   .key = lane->key,
                                                                   .attempts = lane->failures,
                                                                   .delay_us = delay_left_us(lane),
                                                                   .after_id = lane->after_id,
                                                                   .why = reason_of(lane)};
    add_resumed(s, lists, lane);
}

static void add_lane(struct settle_job *job, struct lists *lists, struct lane *lane)
{
    const struct item *next = add_acked(job, lists, lane);
    lane->batch->in_settlement++;
    job->lanes[job->lane_count++] = lane;
    add_end(job, lists, lane);
    add_lease(&job->settlement, lists, lane, next);
}

static void add_lanes(struct settle_job *job, struct lists *lists, struct batch *batch, bool prefixes)
{
    for (struct lane *lane = batch->lanes; lane && lists->room > 0; lane = lane->next)
        if (takes_part(lane, prefixes))
            add_lane(job, lists, lane);
}

static void add_lease_lists(struct lists *lists, size_t lanes, struct arena *arena)
{
    lists->tokens = arena_array(arena, lanes, sizeof *lists->tokens);
    lists->moved = arena_array(arena, lanes, sizeof *lists->moved);
    lists->moved_ids = arena_array(arena, lanes, sizeof *lists->moved_ids);
    lists->released = arena_array(arena, lanes, sizeof *lists->released);
}

/* Rows of a lost claim may have been settled by others, and a halved settlement is to find the row that is refused for
 * itself. */
static bool go_by_place(const struct queue *queue, const struct batch *batch)
{
    return queue->ordering->places && queue->refusal.go_by_id == 0 && batch->hold != HOLD_LOST &&
           batch->halving.most == 0;
}

struct settle_job *settle_collect(struct queue *queue, struct batch *batches, bool prefixes)
{
    struct tally tally = count(batches, prefixes);
    if (tally.lanes == 0)
        return NULL;
    FAULT_POINT("settle.collect");
    struct arena *arena = arena_new();
    struct settle_job *job = arena_alloc(arena, sizeof *job);
    job->arena = arena;
    job->all_refused_since = queue->refusal.all_refused_since;
    job->lanes = arena_array(arena, tally.lanes, sizeof(struct lane *));
    struct lists lists = {
        .done = arena_array(arena, tally.done + tally.lanes, sizeof *lists.done),
        .tids = arena_array(arena, tally.done, sizeof *lists.tids),
        .keyless_ids = arena_array(arena, tally.lanes, sizeof *lists.keyless_ids),
        .parked = arena_array(arena, tally.lanes, sizeof *lists.parked),
        .buried = arena_array(arena, tally.lanes, sizeof *lists.buried),
        .keys = arena_array(arena, tally.lanes, sizeof *lists.keys),
    };
    if (queue->config->response_max > 0)
        lists.responses = arena_array(arena, tally.done, sizeof *lists.responses);
    if (holding_of_queue(queue)->has_tokens)
        add_lease_lists(&lists, tally.lanes, arena);
    size_t most = halving_room(&queue->refusal.in_time, SIZE_MAX);
    for (struct batch *batch = batches; batch && job->row_count < most; batch = batch->next) {
        bool alone = batch->halving.most > 0;
        if (alone && job->lane_count > 0)
            break;
        lists.room = halving_room(&batch->halving, most - job->row_count);
        add_lanes(job, &lists, batch, prefixes);
        if (alone && job->lane_count > 0)
            break;
    }
    struct settlement *s = &job->settlement;
    s->unreadable = queue->unreadable.ids; /* sent before that changes */
    s->unreadable_count = queue->unreadable.count;
    for (size_t i = 0; i < s->buried_count; i++)
        lists.done[s->done_count + i] = lists.buried[i].id;
    s->done = lists.done;
    s->tids = s->done_count > 0 && go_by_place(queue, job->lanes[0]->batch) ? lists.tids : NULL;
    s->responses = lists.responses;
    s->parked = lists.parked;
    s->buried = lists.buried;
    s->resumed_keys = lists.keys;
    s->resumed_keyless_ids = lists.keyless_ids;
    s->tokens = lists.tokens;
    s->moved_tokens = lists.moved;
    s->moved_ids = lists.moved_ids;
    s->released_tokens = lists.released;
    return job;
}

bool settle_is_empty(const struct settle_job *job)
{
    const struct settlement *s = &job->settlement;
    return s->done_count + s->parked_count + s->buried_count + s->resumed_key_count + s->resumed_keyless_count +
               s->released_count ==
           0;
}

static struct book_key key_of(const struct lane *lane)
{
    return (struct book_key){lane->key, lane->hash};
}

static void note_more(struct queue *queue, const struct lane *lane, instant_us now)
{
    const struct claim *holder = lane->batch->hold == HOLD_LOST ? NULL : lane->batch->owner;
    const struct item *from = lane->first ? lane->first : lane->last;
    if (lane->key.data)
        key_book_more(queue, key_of(lane), holder, from ? from->event.id : SCAN_ID_MIN, now);
}

static void release(struct queue *queue, const struct lane *lane, instant_us now)
{
    if (!lane->first && lane->more)
        note_more(queue, lane, now);
    if (!lane->first && !lane->delayed)
        return;
    int64_t from = lane->first ? lane->first->event.id : lane->waited_id;
    int64_t to = lane->delayed ? lane->waited_id : lane->last->event.id;
    queue->ordering->type->released(queue->ordering, from, to, now + lane->release_us);
    if (lane->first && lane->release_us > 0)
        key_book_destination_down(queue, key_of(lane), lane->first->event.id, now + lane->release_us, now);
}

/* If the key had waited and no event of it was left, its entry in parked is removed. Claims for new events have passed
 * over an event that came just then, because of the entry: so the key is asked for once more. */
static bool may_have_more(const struct lane *lane)
{
    return lane->more || (lane->waited && !lane->delayed);
}

/* A lane whose end is settled: what comes next for its key? */
static void lane_settled(struct queue *queue, struct lane *lane, instant_us now)
{
    lane_move(lane, LANE_SETTLED);
    lane->settled_at = lane->batch->settled_at = now;
    struct metrics *metrics = &queue->metrics;
    enum lane_outcome outcome = lane->batch->hold == HOLD_LOST ? LANE_RELEASED : lane->outcome;
    switch (outcome) {
    case LANE_RELEASED:
        metrics->released++;
        release(queue, lane, now);
        return;
    case LANE_RETRY:
        metrics->retried++;
        break;
    case LANE_CLOSED:
        metrics->parked++;
        break;
    case LANE_DEAD:
        metrics->buried++;
        if (lane->failed->next || lane->more || lane->delayed)
            note_more(queue, lane, now);
        break;
    case LANE_DELIVERED:
        if (lane->counted && lane->delay_us < 0)
            metrics->parked++;
        else if (lane->counted)
            metrics->retried++;
        else
            metrics->delayed += lane->delayed && !lane->unreadable;
        if (lane->counted)
            report_unreadable(lane);
        if (may_have_more(lane))
            note_more(queue, lane, now);
        break;
    }
    if (outcome > LANE_RELEASED)
        report_failure(lane);
}

void settle_commit(struct queue *queue, struct settle_job *job, instant_us now)
{
    FAULT_POINT("settle.commit");
    for (size_t i = 0; i < job->lane_count; i++) {
        struct lane *lane = job->lanes[i];
        for (size_t n = 0; n < lane->settling; n++, lane->first = lane->first->next)
            if (lane->key.data)
                order_watch_settled(queue->watch, lane->hash, lane->first->event.id);
        lane->progressed = lane->progressed || lane->settling > 0;
        lane->acked -= lane->settling;
        lane->settling = 0;
        lane->batch->in_settlement--;
        if (lane->state == LANE_SETTLING)
            lane_settled(queue, lane, now);
    }
    queue->wakeups.next_queue = queue->wakeups.next_queue || job->settlement.done_count > 0;
    queue->metrics.settled += job->settlement.done_count;
    if (job->missing > 0) {
        queue->metrics.missing += job->missing;
        report_missing(queue, job->missing);
    }
    arena_free(job->arena);
}

void settle_abort(struct settle_job *job)
{
    FAULT_POINT("settle.abort");
    for (size_t i = 0; i < job->lane_count; i++) {
        struct lane *lane = job->lanes[i];
        lane->settling = 0;
        lane->batch->in_settlement--;
        if (lane->state == LANE_SETTLING)
            lane_move(lane, LANE_FINISHED);
    }
    arena_free(job->arena);
}

void settle_free_batches(struct batch **list)
{
    while (*list) {
        struct batch *batch = *list;
        if (!batch_is_over(batch)) {
            list = &batch->next;
            continue;
        }
        *list = batch->next;
        batch_free(batch);
    }
}
