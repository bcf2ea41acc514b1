#include "relay/deliver.h"

#include "relay/report.h"
#include "relay/settle_rule.h"
#include "relay/suspect.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SUBMIT_MAX 256
#define ROUTE_CIRCUITS_MAX 1000
#define PROBE_POLL_US (20 * MS_US)

static struct item *item_of(struct delivery *d)
{
    return (struct item *)((char *)d - offsetof(struct item, delivery));
}

struct outlet *outlet_open(const struct sink_config *config, const struct log *log, uint64_t seed, struct error *err)
{
    struct sink *sink = sink_open(config->type, config->name, config->settings, err);
    if (!sink) {
        error_prefix(err, "%s: sinks.%s", config->place ? config->place : "configuration", config->name);
        return NULL;
    }
    struct outlet *outlet = memory_new(sizeof *outlet);
    outlet->sink = sink;
    outlet->config = config;
    outlet->log = log;
    outlet->rng.state = seed;
    keyset_init(&outlet->suspects, SUSPECT_MAX);
    return outlet;
}

static void route_circuit_remove(struct outlet *outlet, struct route_circuit **link)
{
    struct route_circuit *route = *link;
    *link = route->next;
    outlet->route_count--;
    free(route->destination);
    free(route);
}

void outlet_close(struct outlet *outlet)
{
    if (!outlet)
        return;
    sink_close(outlet->sink);
    while (outlet->routes)
        route_circuit_remove(outlet, &outlet->routes);
    keyset_done(&outlet->suspects);
    free(outlet);
}

static struct route_circuit **route_circuit_find(struct outlet *outlet, struct span destination)
{
    struct route_circuit **link = &outlet->routes;
    while (*link && !span_equal(span_of((*link)->destination), destination))
        link = &(*link)->next;
    return link;
}

/* The circuit that a failure of this kind belongs to; `ret_name` is what the log calls it. */
static struct circuit *circuit_for(struct outlet *outlet, const struct delivery *d, const char **ret_name)
{
    *ret_name = "";
    if (d->cause->kind != ERROR_ROUTE || outlet->route_count >= ROUTE_CIRCUITS_MAX)
        return &outlet->circuit;
    struct route_circuit **link = route_circuit_find(outlet, d->destination);
    if (!*link) {
        struct route_circuit *route = memory_new(sizeof *route);
        route->destination = memory_new(d->destination.size + 1);
        memcpy(route->destination, d->destination.data, d->destination.size);
        *link = route;
        outlet->route_count++;
    }
    *ret_name = (*link)->destination;
    return &(*link)->circuit;
}

static void close_circuits(struct outlet *outlet, struct span destination, instant_us now)
{
    if (circuit_ack(&outlet->circuit))
        report_circuit_closed(outlet, "", now - outlet->circuit.opened_at);
    if (!outlet->routes)
        return;
    struct route_circuit **link = route_circuit_find(outlet, destination);
    if (*link) {
        report_circuit_closed(outlet, (*link)->destination, now - (*link)->circuit.opened_at);
        route_circuit_remove(outlet, link);
    }
}

void deliver_lane(struct outlet *outlet, struct lane *lane)
{
    lane->queued = true;
    lane->ready_next = NULL;
    lane->ready_prev = outlet->ready_end;
    if (outlet->ready_end)
        outlet->ready_end->ready_next = lane;
    else
        outlet->ready = lane;
    outlet->ready_end = lane;
}

static void ready_remove(struct outlet *outlet, struct lane *lane)
{
    *(lane->ready_prev ? &lane->ready_prev->ready_next : &outlet->ready) = lane->ready_next;
    *(lane->ready_next ? &lane->ready_next->ready_prev : &outlet->ready_end) = lane->ready_prev;
    lane->queued = false;
}

static void finish_if_done(struct lane *lane, instant_us now)
{
    if (lane->in_flight > 0 || lane->state > LANE_STOPPED || (lane->state == LANE_OPEN && lane->unsent))
        return;
    if (lane->state == LANE_OPEN)
        lane->outcome = LANE_DELIVERED;
    lane->state = LANE_FINISHED;
    lane->finished_at = now;
    lane->batch->open--;
    lane->batch->finished++;
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
    if (lane->state == LANE_OPEN) {
        lane->state = LANE_STOPPED;
        lane->outcome = LANE_RELEASED;
        lane->release_us = release_us;
    }
    send_no_more(lane);
    finish_if_done(lane, now);
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
    send_no_more(lane);
    if (lane->state != LANE_OPEN && (!lane->failed || lane->failed->event.id < item->event.id))
        return; /* what stopped the lane comes first */
    bool last = item->event.attempt >= queue->config->retry_attempts;
    lane->state = LANE_STOPPED;
    lane->failed = item;
    lane->outcome = settle_rule(item->delivery.verdict, blame, last, (enum on_exhausted)queue->config->on_exhausted);
    lane->delay_us = lane->outcome == LANE_RETRY ? retry_delay_us(queue, item) : 0;
    lane->release_us = release_us;
}

static int64_t open_circuit(struct outlet *outlet, const struct delivery *d, instant_us now)
{
    const char *name;
    struct circuit *circuit = circuit_for(outlet, d, &name);
    if (circuit_fail(circuit, now, d->retry_after_us, &outlet->rng))
        report_circuit_opened(outlet, name, d->cause);
    return circuit->retry_at > now ? circuit->retry_at - now : 0;
}

static void take_failure(struct outlet *outlet, struct item *item, instant_us now)
{
    const struct delivery *d = &item->delivery;
    bool certain =
        d->cause->kind == ERROR_ROUTE || (d->cause->kind == ERROR_UNREACHABLE && d->verdict == VERDICT_RETRY);
    bool serving = !certain && outlet->last_ack_at > item->submitted_at;
    enum blame blame = settle_blame(d, false);
    int64_t release_us = 0;
    if (blame == BLAME_DESTINATION && !certain)
        blame = settle_blame(d, suspect_fails_again(&outlet->suspects, item, outlet->last_ack_at, now));
    /* Nobody's fault yet: while others are taken, this one waits alone, and long enough that an outage that has just
     * begun is plain by then. */
    int64_t alone_us = lane_queue(item->lane)->config->retry_base_us;
    if (blame == BLAME_DESTINATION)
        release_us = !serving                       ? open_circuit(outlet, d, now)
                     : d->retry_after_us > alone_us ? d->retry_after_us
                                                    : alone_us;
    fail_lane(item, blame, release_us);
}

static void take_ack(struct outlet *outlet, struct item *item, instant_us now, int64_t wall_us)
{
    struct lane *lane = item->lane;
    struct metrics *metrics = &lane_queue(lane)->metrics;
    outlet->last_ack_at = now;
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

static void take_verdict(struct outlet *outlet, struct delivery *d, instant_us now, int64_t wall_us)
{
    struct item *item = item_of(d);
    struct lane *lane = item->lane;
    lane->in_flight--;
    struct route_circuit *route = outlet->routes ? *route_circuit_find(outlet, d->destination) : NULL;
    if (route)
        route->trying = false;
    if (d->verdict == VERDICT_ACKED)
        take_ack(outlet, item, now, wall_us);
    else
        take_failure(outlet, item, now);
    finish_if_done(lane, now);
    if (lane->state != LANE_OPEN || !lane->unsent || lane->queued)
        return;
    if (outlet->stopping)
        deliver_stop(lane, 0, now);
    else
        deliver_lane(outlet, lane);
}

enum pass { PASS_GO, PASS_WAIT, PASS_BLOCKED };

static enum pass circuit_pass(struct circuit *circuit, size_t in_flight)
{
    switch (circuit->state) {
    case CIRCUIT_CLOSED:
        return PASS_GO;
    case CIRCUIT_TRIAL:
        return in_flight == 0 ? PASS_GO : PASS_WAIT;
    case CIRCUIT_OPEN:
    case CIRCUIT_PROBING:
        break;
    }
    return PASS_BLOCKED;
}

/* May the next event of this lane go? Fills how long to keep away when it may not. */
static enum pass lane_pass(struct outlet *outlet, const struct lane *lane, size_t in_flight, instant_us now,
                           int64_t *ret_release_us)
{
    struct circuit *circuit = &outlet->circuit;
    enum pass pass = circuit_pass(circuit, in_flight);
    if (pass == PASS_GO && outlet->routes) {
        struct route_circuit **link = route_circuit_find(outlet, lane->unsent->delivery.destination);
        if (*link) {
            circuit = &(*link)->circuit;
            bool go = circuit->state == CIRCUIT_CLOSED || (circuit->state == CIRCUIT_TRIAL && !(*link)->trying);
            (*link)->trying = (*link)->trying || go;
            pass = go ? PASS_GO : PASS_BLOCKED;
        }
    }
    *ret_release_us = circuit->retry_at > now ? circuit->retry_at - now : 100 * MS_US;
    return pass;
}

/* An event that no sink needs to see: too large, or without a destination. */
static bool is_refused(const struct item *item)
{
    return item->delivery.verdict == VERDICT_REJECTED || item->event.oversize_bytes > 0;
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

/* Puts as much of the lane as may be in flight into `ds`; returns how many. */
static size_t gather_lane(struct outlet *outlet, struct lane *lane, struct delivery **ds, size_t room, instant_us now)
{
    size_t n = 0;
    size_t most = outlet->sink->traits & SINK_KEEPS_KEY_ORDER ? room : 1;
    while (n < most && lane->unsent && !is_refused(lane->unsent)) {
        lane->unsent->submitted_at = now;
        ds[n++] = &lane->unsent->delivery;
        lane->unsent = lane->unsent->next;
        lane->in_flight++;
    }
    return n;
}

static size_t gather(struct outlet *outlet, struct delivery **ds, size_t room, instant_us now)
{
    size_t n = 0;
    while (outlet->ready && n < room) {
        struct lane *lane = outlet->ready;
        int64_t release_us;
        assert(lane->unsent && "only a lane with something to send is ready");
        if (is_refused(lane->unsent)) {
            /* Not before everything ahead of it is acked: the verdict of that brings the lane back here. */
            if (lane->in_flight == 0)
                refuse(lane, now);
            else
                ready_remove(outlet, lane);
            continue;
        }
        enum pass pass = lane_pass(outlet, lane, outlet->sink->in_flight + n, now, &release_us);
        if (pass == PASS_WAIT)
            break;
        if (pass == PASS_BLOCKED) {
            deliver_stop(lane, release_us, now);
            continue;
        }
        ready_remove(outlet, lane);
        n += gather_lane(outlet, lane, ds + n, outlet->circuit.state == CIRCUIT_TRIAL ? 1 : room - n, now);
        if (lane->unsent && lane->in_flight > 0 && outlet->sink->traits & SINK_KEEPS_KEY_ORDER)
            deliver_lane(outlet, lane);
    }
    return n;
}

/* The sink was full: what it did not take goes back to the front of its lane. */
static void put_back(struct outlet *outlet, struct delivery **ds, size_t from, size_t to, instant_us now)
{
    for (size_t i = to; i-- > from;) {
        struct item *item = item_of(ds[i]);
        struct lane *lane = item->lane;
        lane->in_flight--;
        struct route_circuit *route = outlet->routes ? *route_circuit_find(outlet, ds[i]->destination) : NULL;
        if (route)
            route->trying = false;
        if (lane->state != LANE_OPEN) {
            finish_if_done(lane, now); /* stopped meanwhile by a later event of it */
            continue;
        }
        lane->unsent = item;
        if (!lane->queued)
            deliver_lane(outlet, lane);
    }
}

static void submit(struct outlet *outlet, instant_us now)
{
    struct delivery *ds[SUBMIT_MAX];
    size_t max = (size_t)outlet->config->max_in_flight;
    while (outlet->ready && outlet->sink->in_flight < max) {
        size_t room = max - outlet->sink->in_flight;
        size_t n = gather(outlet, ds, room < SUBMIT_MAX ? room : SUBMIT_MAX, now);
        size_t taken = n ? sink_submit(outlet->sink, ds, n, now) : 0;
        put_back(outlet, ds, taken, n, now);
        if (taken == 0)
            return;
    }
}

static void probe_circuits(struct outlet *outlet, instant_us now)
{
    if (circuit_turn(&outlet->circuit, now) == CIRCUIT_PROBING) {
        enum reach reach = sink_probe(outlet->sink, SPAN_LITERAL(""), now);
        if (reach != REACH_PENDING)
            circuit_probed(&outlet->circuit, reach == REACH_YES, now, &outlet->rng);
    }
    /* A destination is tried with one of its own events: only that tells whether it takes them. */
    for (struct route_circuit *route = outlet->routes; route; route = route->next)
        if (circuit_turn(&route->circuit, now) == CIRCUIT_PROBING)
            circuit_probed(&route->circuit, true, now, &outlet->rng);
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

void outlet_prepare(struct outlet *outlet, struct pollset *ps, instant_us now)
{
    sink_prepare(outlet->sink, ps);
    if (outlet->circuit.state == CIRCUIT_PROBING)
        pollset_deadline(ps, now + PROBE_POLL_US);
    pollset_deadline(ps, outlet_wake_at(outlet));
}

instant_us outlet_wake_at(const struct outlet *outlet)
{
    instant_us at = outlet->circuit.state == CIRCUIT_OPEN ? outlet->circuit.retry_at : INSTANT_NEVER;
    for (const struct route_circuit *route = outlet->routes; route; route = route->next)
        if (route->circuit.state == CIRCUIT_OPEN)
            at = instant_min(at, route->circuit.retry_at);
    return at;
}

int64_t outlet_keys_wanted(struct outlet *outlet, const struct route *route, instant_us now)
{
    enum circuit_state state = circuit_turn(&outlet->circuit, now);
    struct span destination = route_static(route);
    struct route_circuit *only = destination.data ? *route_circuit_find(outlet, destination) : NULL;
    if (state == CIRCUIT_CLOSED && only && circuit_turn(&only->circuit, now) != CIRCUIT_CLOSED)
        return only->circuit.state == CIRCUIT_TRIAL && !only->trying ? 1 : 0;
    if (state == CIRCUIT_CLOSED)
        return INT64_MAX;
    return state == CIRCUIT_TRIAL && outlet->sink->in_flight == 0 && !outlet->ready ? 1 : 0;
}
