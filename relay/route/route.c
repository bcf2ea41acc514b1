#include "relay/route/route.h"

#include "relay/base/fault_point.h"
#include "relay/deliver/outlet.h"
#include "relay/deliver/ready.h"
#include "relay/queue/holding.h"
#include "relay/queue/order_watch.h"
#include "relay/queue/report.h"
#include "relay/route/destination.h"

/* An event that was put back by hand waits with an entry of its own: it is old, not late. Nor is one that others passed
 * before its time. */
static void watch_order(struct queue *queue, const struct lane *lane)
{
    if (!lane->key.data || !lane->first || lane->waited || lane->first->event.overtaken ||
        !order_watch_is_late(queue->watch, lane->hash, lane->first->event.id))
        return;
    queue->metrics.late++;
    report_late(queue, &lane->first->event);
}

/* An event that keeps its relays from ending its lease comes to an end like one that is refused. */
static bool has_used_up_leases(const struct queue *queue, struct item *item, struct error *cause)
{
    if (!holding_of_queue(queue)->may_expire || item->event.attempt <= queue->config->retry_attempts)
        return false;
    item->event.attempt = (unsigned)queue->config->retry_attempts;
    error_set(cause, ERROR_REFUSED, "the lease of its last attempt ran out");
    return true;
}

static void route_item(const struct queue *queue, struct batch *batch, struct item *item)
{
    struct delivery *d = &item->delivery;
    struct error cause;
    d->event = &item->event;
    d->arena = batch->arena;
    d->routed_by_event = !route_static(queue->route).data;
    if (batch->response_max > 0)
        d->response = response_new(batch->arena, batch->response_max);
    if (!has_used_up_leases(queue, item, &cause) &&
        route_event(queue->route, &item->event, batch->arena, &d->destination, &cause))
        return;
    d->verdict = VERDICT_REJECTED;
    d->cause = arena_alloc(batch->arena, sizeof cause);
    *d->cause = cause;
}

static void route_batch(struct queue *queue, struct batch *batch)
{
    for (struct lane *lane = batch->lanes; lane; lane = lane->next) {
        watch_order(queue, lane);
        for (struct item *item = lane->first; item; item = item->next) {
            item->lane = lane;
            route_item(queue, batch, item);
        }
        if (lane->state == LANE_OPEN)
            ready_add(queue->outlet, lane);
    }
}

void route_claimed(struct queue *queue)
{
    while (queue->arrived) {
        struct batch *batch = queue->arrived;
        queue->arrived = batch->arrived_next;
        if (batch->hold != HOLD_LOST)
            route_batch(queue, batch);
        FAULT_POINT("route.batch");
    }
}
