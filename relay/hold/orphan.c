#include "relay/hold/orphan.h"

#include "relay/deliver/deliver.h"
#include "relay/queue/queue.h"
#include "relay/queue/report.h"
#include "relay/settle/refusal.h"

static bool is_orphaned(const struct queue *queue, const struct lane *lane, instant_us sent_at)
{
    for (const struct batch *batch = queue->holds.orphans; batch; batch = batch->next)
        for (const struct lane *orphan = batch_chain(batch, lane->hash); orphan; orphan = orphan->chain_next)
            if (lane_repeats(lane, orphan, sent_at))
                return true;
    return false;
}

void orphan_drop(const struct queue *queue, struct batch *claimed, instant_us now)
{
    for (struct lane *lane = claimed->lanes; lane; lane = lane->next)
        if (lane->state < LANE_FINISHED && is_orphaned(queue, lane, claimed->sent_at))
            deliver_stop(lane, 0, now);
}

void orphan_make(struct queue *queue, struct batch **held, bool session, instant_us now)
{
    size_t events = 0, in_flight = 0;
    for (struct batch **list = held; *list;) {
        struct batch *batch = *list;
        refusal_undo_halving(batch);
        if (batch->hold == HOLD_SESSION && !session) {
            list = &batch->next;
            continue;
        }
        *list = batch->next;
        batch_hold(batch, HOLD_LOST);
        for (struct lane *lane = batch->lanes; lane; lane = lane->next) {
            events += lane->state < LANE_SETTLED ? lane->count : 0;
            in_flight += lane->in_flight;
            deliver_cancel(lane);
            if (lane->state < LANE_FINISHED)
                deliver_stop(lane, 0, now);
        }
        holds_push(&queue->holds.orphans, batch);
    }
    struct holds_walk walk = holds_walk(&queue->holds);
    for (struct batch *batch; (batch = holds_next(&walk));)
        if (batch->hold != HOLD_LOST)
            orphan_drop(queue, batch, now);
    if (events > 0) {
        queue->metrics.lost++;
        report_lost(queue, events, in_flight);
    }
}

void orphan_free(struct queue *queue)
{
    for (struct batch **list = &queue->holds.orphans; *list;) {
        struct batch *batch = *list;
        if (batch->unsettled > 0 || queue->claiming.asking_since <= batch->settled_at) {
            list = &batch->next;
            continue;
        }
        *list = batch->next;
        batch_free(batch);
    }
}
