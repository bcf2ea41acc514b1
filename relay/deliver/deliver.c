#include "relay/deliver/deliver.h"

#include "relay/base/fault_point.h"
#include "relay/deliver/circuit_report.h"
#include "relay/deliver/next_payload.h"
#include "relay/deliver/outlet.h"
#include "relay/deliver/ready.h"
#include "relay/deliver/route_circuit.h"
#include "relay/deliver/suspect.h"
#include "relay/deliver/verdict_rule.h"
#include "relay/queue/queue.h"
#include "relay/table/table.h"

#include <assert.h>
#include <inttypes.h>

#define SUBMIT_MAX 1024
#define TRIAL_WAIT_US (100 * MS_US) /* while a trial delivery is under way */
#define WASTED_US 200               /* so that at most 5,000 keys a second are claimed for a destination that is down */

/* The event that failed may be why the sink takes no others: others are tried before it. */
#define OTHERS_FIRST_US SECOND_US

/* One event's Retry-After stops its sink for no longer than this, because its destination need not speak for all. The
 * event itself waits as long as its destination asks. */
#define ASKED_MAX_US (30 * SECOND_US)

static struct item *item_of(struct delivery *d)
{
    return (struct item *)((char *)d - offsetof(struct item, delivery));
}

/* The circuit that a failure of this kind belongs to; `ret_name` is what the log calls it. */
static struct circuit *circuit_for(struct outlet *outlet, const struct delivery *d, const char **ret_name)
{
    *ret_name = "";
    if (d->cause->kind != ERROR_ROUTE)
        return &outlet->circuit;
    struct route_circuit *route = route_circuit_take(&outlet->routes, d->destination);
    *ret_name = route->destination;
    return &route->circuit;
}

static void close_circuits(struct outlet *outlet, struct span destination, instant_us now)
{
    if (circuit_ack(&outlet->circuit))
        report_circuit_closed(outlet, "", now - outlet->circuit.opened_at);
    struct route_circuit *route = route_circuit_find(&outlet->routes, destination);
    if (route) {
        report_circuit_closed(outlet, route->destination, now - route->circuit.opened_at);
        route_circuit_forget(&outlet->routes, route);
    }
}

/* The delivery has its verdict, or did not go after all. */
static void end_trials(struct outlet *outlet, const struct delivery *d)
{
    circuit_end_trial(&outlet->circuit, d);
    struct route_circuit *route = route_circuit_find(&outlet->routes, d->destination);
    if (route)
        circuit_end_trial(&route->circuit, d);
}

static void finish_if_done(struct lane *lane, instant_us now)
{
    if (lane->in_flight > 0 || lane->state > LANE_STOPPED || (lane->state == LANE_OPEN && lane->unsent))
        return;
    if (lane->state == LANE_OPEN)
        lane->outcome = LANE_DELIVERED;
    FAULT_POINT("deliver.finished");
    lane_move(lane, LANE_FINISHED);
    lane->finished_at = now;
}

/* A stopped lane leaves the ready list at once: when it is finished, it may be settled and freed at any time. */
static void send_no_more(struct lane *lane)
{
    lane->unsent = NULL;
    if (lane->queued)
        ready_remove(lane_queue(lane)->outlet, lane);
}

void deliver_stop(struct lane *lane, int64_t release_us, instant_us now)
{
    FAULT_POINT("deliver.stop");
    if (lane->state == LANE_OPEN) {
        lane_move(lane, LANE_STOPPED);
        lane->outcome = LANE_RELEASED;
        lane->release_us = release_us;
    }
    send_no_more(lane);
    finish_if_done(lane, now);
}

void deliver_cancel(const struct lane *lane)
{
    for (struct item *item = lane->in_flight > 0 ? lane->first : NULL; item; item = item->next)
        sink_cancel(&item->delivery);
}

static int64_t retry_delay_us(struct queue *queue, const struct item *item)
{
    struct backoff backoff = {queue->config->retry_base_us, queue->config->retry_max_us};
    int64_t asked = item->delivery.retry_after_us;
    int64_t delay = backoff_delay_us(&backoff, item->event.attempt, &queue->rng);
    return asked > delay ? asked : delay;
}

static void fail_lane(struct item *item, enum blame blame, int64_t release_us)
{
    struct lane *lane = item->lane;
    struct queue *queue = lane_queue(lane);
    FAULT_POINT("deliver.failed");
    send_no_more(lane);
    /* A lane may have been stopped by something behind this event. Without its lock, only what was acked counts. */
    if (lane_is_lost(lane) || (lane->failed && lane->failed->event.id < item->event.id))
        return;
    bool last = item->event.attempt >= queue->config->retry_attempts;
    if (lane->state == LANE_OPEN)
        lane_move(lane, LANE_STOPPED);
    lane->failed = item;
    lane->outcome = verdict_rule(item->delivery.verdict, blame, last, (enum on_exhausted)queue->config->on_exhausted);
    lane->delay_us = lane->outcome == LANE_RETRY ? retry_delay_us(queue, item) : 0;
    lane->release_us = release_us;
}

static int64_t release_wait_us(const struct circuit *circuit, instant_us now)
{
    return circuit->retry_at > now ? circuit->retry_at - now : TRIAL_WAIT_US;
}

static int64_t open_circuit(struct outlet *outlet, const struct delivery *d, instant_us now)
{
    const char *name;
    FAULT_POINT("circuit.open");
    struct circuit *circuit = circuit_for(outlet, d, &name);
    int64_t asked_us = d->retry_after_us;
    int64_t wait_us = circuit == &outlet->circuit && asked_us > ASKED_MAX_US ? ASKED_MAX_US : asked_us;
    bool tried = circuit->trial_delivery == d, opened = circuit_fail(circuit, d, wait_us, now, &outlet->rng);
    if (opened)
        report_circuit_opened(outlet, circuit, name, d->cause, now);
    else if (tried)
        report_circuit_changed(outlet, circuit, name, d->cause, now);
    int64_t away_us = release_wait_us(circuit, now);
    return asked_us > away_us ? asked_us : away_us;
}

/* Not known to be the event's fault yet: while others are taken, it waits alone, so long that an outage that has just
 * begun shows by then. */
static int64_t alone_us(const struct item *item)
{
    int64_t base_us = lane_queue(item->lane)->config->retry_base_us;
    return item->delivery.retry_after_us > base_us ? item->delivery.retry_after_us : base_us;
}

static void take_failure(struct outlet *outlet, struct item *item, instant_us now)
{
    const struct delivery *d = &item->delivery;
    bool certain =
        d->cause->kind == ERROR_ROUTE || (d->cause->kind == ERROR_UNREACHABLE && d->verdict == VERDICT_RETRY);
    bool serving = !certain && outlet->last_ack_at > item->submitted_at;
    enum blame blame = verdict_blame(d, false);
    if (blame == BLAME_DESTINATION && !certain)
        blame = verdict_blame(d, suspect_fails_again(&outlet->suspects, item, outlet->taken_sent_at, now));
    int64_t release_us = 0;
    if (blame == BLAME_DESTINATION)
        release_us = serving ? alone_us(item) : open_circuit(outlet, d, now) + (certain ? 0 : OTHERS_FIRST_US);
    fail_lane(item, blame, release_us);
}

static void take_ack(struct outlet *outlet, struct item *item, instant_us now, int64_t wall_us)
{
    struct lane *lane = item->lane;
    struct metrics *metrics = &lane_queue(lane)->metrics;
    FAULT_POINT("deliver.acked");
    outlet->last_ack_at = now;
    if (item->submitted_at > outlet->taken_sent_at)
        outlet->taken_sent_at = item->submitted_at;
    close_circuits(outlet, item->delivery.destination, now);
    metrics->delivered++;
    if (item->event.created_at_us > 0)
        histogram_add(&metrics->lag_us, wall_us - item->event.created_at_us);
    /* Only the acked prefix of a key is ever settled. */
    while (lane->unacked && lane->unacked->delivery.verdict == VERDICT_ACKED) {
        lane->acked++;
        lane->unacked = lane->unacked->next;
    }
}

/* The lane's next event may be sent if the events before it are not in flight any more, or may be in flight with it.
 */
static bool may_go(const struct outlet *outlet, const struct lane *lane)
{
    bool alone = lane->in_flight == 0 || outlet->sink->traits & SINK_KEEPS_KEY_ORDER;
    return lane->state == LANE_OPEN && lane->unsent && alone;
}

static void send_on(struct outlet *outlet, struct lane *lane)
{
    if (!lane->queued && may_go(outlet, lane))
        ready_add(outlet, lane);
}

static void take_verdict(struct outlet *outlet, struct delivery *d, instant_us now, int64_t wall_us)
{
    struct item *item = item_of(d);
    struct lane *lane = item->lane;
    ready_returned(outlet, lane);
    if (d->response)
        next_payload_judge(lane_queue(lane)->table->next, d);
    if (d->verdict == VERDICT_ACKED)
        take_ack(outlet, item, now, wall_us);
    else
        take_failure(outlet, item, now);
    end_trials(outlet, d);
    finish_if_done(lane, now);
    if (lane->state == LANE_OPEN && lane->unsent && outlet->stopping)
        deliver_stop(lane, 0, now);
    else
        send_on(outlet, lane);
}

enum pass { PASS_GO, PASS_WAIT, PASS_BLOCKED };

/* May the next event of this lane be sent? If not, fills how long its key is left out of claims. */
static enum pass lane_pass(const struct outlet *outlet, const struct lane *lane, instant_us now,
                           int64_t *ret_release_us)
{
    const struct circuit *circuit = &outlet->circuit;
    *ret_release_us = release_wait_us(circuit, now);
    if (!circuit_lets_go(circuit))
        return circuit->state == CIRCUIT_HALF_OPEN ? PASS_WAIT : PASS_BLOCKED;
    const struct route_circuit *route = route_circuit_find(&outlet->routes, lane->unsent->delivery.destination);
    if (!route || circuit_lets_go(&route->circuit))
        return PASS_GO;
    *ret_release_us = release_wait_us(&route->circuit, now);
    return PASS_BLOCKED;
}

/* True when this delivery is a trial, and goes alone. */
static bool begin_trials(struct outlet *outlet, const struct delivery *d)
{
    struct route_circuit *route = route_circuit_find(&outlet->routes, d->destination);
    bool of_route = route && circuit_begin_trial(&route->circuit, d);
    return circuit_begin_trial(&outlet->circuit, d) || of_route;
}

static void refuse(struct lane *lane, instant_us now)
{
    struct item *item = lane->unsent;
    struct delivery *d = &item->delivery;
    if (d->verdict == VERDICT_NONE) {
        d->verdict = VERDICT_REJECTED;
        d->cause = arena_alloc(d->arena, sizeof *d->cause);
        error_set(d->cause, ERROR_REFUSED, "payload of %" PRId64 " bytes is larger than max_event_bytes",
                  item->event.oversize_bytes);
    }
    fail_lane(item, BLAME_EVENT, 0);
    finish_if_done(lane, now);
}

/* Claimed, and given back at once, because this one destination is down. */
static void note_wasted(struct queue *queue, instant_us now)
{
    instant_us from = queue->wasted_until > now ? queue->wasted_until : now;
    queue->wasted_until = from + WASTED_US;
}

static size_t gather(struct outlet *outlet, struct delivery **ds, size_t room, instant_us now)
{
    size_t n = 0;
    while (outlet->ready && n < room) {
        struct lane *lane = outlet->ready;
        int64_t release_us;
        assert(lane->unsent && "only a lane with something to send is ready");
        if (ready_is_refused(lane->unsent)) {
            /* Not before everything ahead of it is acked: the verdict of that brings the lane back here. */
            if (lane->in_flight == 0)
                refuse(lane, now);
            else
                ready_remove(outlet, lane);
            continue;
        }
        enum pass pass = lane_pass(outlet, lane, now, &release_us);
        if (pass == PASS_WAIT)
            break;
        if (pass == PASS_BLOCKED) {
            if (circuit_lets_go(&outlet->circuit))
                note_wasted(lane_queue(lane), now);
            deliver_stop(lane, release_us, now);
            continue;
        }
        bool trial = begin_trials(outlet, &lane->unsent->delivery);
        n += ready_take(outlet, lane, ds + n, trial ? 1 : room - n, now);
        if (outlet->sink->traits & SINK_KEEPS_KEY_ORDER)
            send_on(outlet, lane);
    }
    return n;
}

/* The sink was full: what it did not take goes back to the front of its lane, and the lanes to theirs: a sink that
 * never has room for all would not come to those behind the ones that it takes. */
static void put_back(struct outlet *outlet, struct delivery **ds, size_t from, size_t to, instant_us now)
{
    for (size_t i = to; i-- > from;) {
        struct item *item = item_of(ds[i]);
        struct lane *lane = item->lane;
        ready_returned(outlet, lane);
        end_trials(outlet, ds[i]);
        if (lane->state != LANE_OPEN) {
            finish_if_done(lane, now); /* stopped meanwhile by a later event of it */
            continue;
        }
        lane->unsent = item;
        if (lane->queued)
            ready_remove(outlet, lane);
        if (may_go(outlet, lane))
            ready_add_first(outlet, lane);
    }
}

static void submit(struct outlet *outlet, instant_us now)
{
    struct delivery *ds[SUBMIT_MAX];
    size_t max = (size_t)outlet_most_in_flight(outlet);
    while (outlet->ready && outlet->sink->in_flight < max) {
        size_t room = max - outlet->sink->in_flight;
        size_t n = gather(outlet, ds, room < SUBMIT_MAX ? room : SUBMIT_MAX, now);
        FAULT_POINT("deliver.submit");
        size_t taken = n ? sink_submit(outlet->sink, ds, n, now) : 0;
        FAULT_POINT("deliver.submitted");
        put_back(outlet, ds, taken, n, now);
        if (taken == 0)
            return;
    }
}

static void probe_circuits(struct outlet *outlet, instant_us now)
{
    if (circuit_turn(&outlet->circuit, now) == CIRCUIT_PROBING) {
        struct error why;
        enum reach reach = REACH_NO;
        if (FAULT_ERROR("circuit.probe"))
            error_set(&why, ERROR_UNREACHABLE, "probing fails because it is made to");
        else
            reach = sink_probe(outlet->sink, SPAN_LITERAL(""), now, &why);
        if (reach != REACH_PENDING)
            circuit_probed(&outlet->circuit, reach == REACH_YES, now, &outlet->rng);
        if (reach == REACH_NO)
            report_circuit_changed(outlet, &outlet->circuit, "", &why, now);
    }
    route_circuits_turn(&outlet->routes, &outlet->rng, now);
}

void deliver_ready(struct outlet *outlet, const struct pollset *ps, instant_us now, int64_t wall_us)
{
    submit(outlet, now);
    sink_progress(outlet->sink, ps, now);
    for (struct delivery *d; (d = sink_take_resolved(outlet->sink));)
        take_verdict(outlet, d, now, wall_us);
    probe_circuits(outlet, now);
    submit(outlet, now);
}

void deliver_stop_all(struct outlet *outlet, instant_us now)
{
    outlet->stopping = true;
    while (outlet->ready)
        deliver_stop(outlet->ready, 0, now);
}
