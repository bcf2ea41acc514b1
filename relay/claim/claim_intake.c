#include "relay/claim/claim_intake.h"

#include "relay/claim/claim_request.h"
#include "relay/claim/claim_state.h"
#include "relay/hold/lease.h"
#include "relay/hold/session_lock.h"
#include "relay/queue/queue.h"
#include "relay/settle/round.h"
#include "relay/settle/settle.h"
#include "relay/side/unreadable.h"
#include "relay/table/table.h"

static bool take_event(void *to, const struct event *event, bool waited, struct error *err)
{
    struct batch *batch = to;
    const struct claim *claim = batch->owner;
    if (!batch_add(batch, event, claim->queue->table->extra_count, err))
        return false;
    struct lane *lane = batch->lanes_end;
    /* Not where it was left out: then the last lane may be another one's. */
    bool taken =
        lane->key.data ? event->key.data && span_equal(lane->key, event->key) : lane_keyless_id(lane) == event->id;
    lane->waited = lane->waited || (waited && taken);
    return true;
}

static void take_ended_wait(void *to, struct span key, int64_t id)
{
    batch_add_ended_wait(to, key, id);
}

static void take_delayed(void *to, struct span key, int64_t id, int64_t delay_us, int64_t after_id)
{
    struct lane *lane = batch_add_delayed(to, key, id, delay_us);
    if (lane)
        lane->after_id = after_id;
}

static void take_unreadable(void *to, struct span key, int64_t id, unsigned failures)
{
    struct batch *batch = to;
    const struct claim *claim = batch->owner;
    struct lane *lane = batch_add_delayed(batch, key, id, 0);
    if (lane)
        unreadable_met(claim->queue, lane, failures, claim->sent_at);
}

static void take_paused(void *to)
{
    struct batch *batch = to;
    batch->found_paused = true;
}

bool claim_intake_take(struct claim *claim, size_t index, const PGresult *res, struct error *err)
{
    struct round *round = &claim->round;
    struct ordering *ordering = claim->queue->ordering;
    size_t first = round_before_claim(round);
    if (round->lock_count > 0 && index == 0)
        return claim_holding(claim)->commits_before_delivery ? lease_check(round, res, err)
                                                             : session_lock_taken(claim->batches, round, res, err);
    if (index < round->settle_end) {
        if (index >= round->settle_at)
            ordering->type->settled(ordering, &round->job->settlement, index - round->settle_at, res,
                                    &round->job->missing);
        return true;
    }
    if (round->unlock_count > 0 && index + 1 == first)
        return session_lock_freed(round, res, err);
    if (!round->claim || index < first)
        return true;
    struct claim_intake intake = {.arena = claim->arriving->arena,
                                  .to = claim->arriving,
                                  .event = take_event,
                                  .ended_wait = take_ended_wait,
                                  .delayed = take_delayed,
                                  .unreadable = take_unreadable,
                                  .paused = take_paused};
    return ordering->type->claimed(ordering, &claim->plan, index - first, res, &intake, err);
}

void claim_intake_end(struct claim_plan *plan, const struct batch *batch)
{
    plan->events = batch->event_count;
    plan->spilled = batch->spilled;
    if (!batch->spilled)
        return;
    double part = (double)batch->bytes_max / (double)(batch->bytes + batch->spilled_bytes);
    plan->room = part * (double)plan->rows > 1 ? (int64_t)(part * (double)plan->rows) : 1;
}

/* In the midst of a backlog: the events of one range of ids say nothing of the next range. Ids that have settled since,
 * or were missed a while ago, are no backlog: they have time until the next claim. */
static bool looks_on(const struct claim_plan *plan)
{
    const struct scan_report *report = &plan->report;
    return !plan->scan.sweeping &&
           (plan->scan.more || !id_range_is_empty(report->newest_left) || !id_range_is_empty(report->oldest_left));
}

static bool took_all(const struct claim *claim, const struct batch *batch)
{
    const struct claim_plan *plan = &claim->plan;
    if (looks_on(plan))
        return false;
    for (const struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (lane->more)
            return false;
    return plan->locked < claim->round.keys && !plan->thin && !plan->left && !plan->truncated;
}

struct pace_claim claim_intake_pace(const struct claim *claim, const struct batch *batch)
{
    return (struct pace_claim){.sent_at = claim->sent_at,
                               .events = (int64_t)batch->event_count,
                               .found = batch->lane_count > 0,
                               .took_all = took_all(claim, batch),
                               .full = claim->full};
}
