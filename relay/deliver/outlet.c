#include "relay/deliver/outlet.h"

#include "relay/base/arena.h"
#include "relay/deliver/route_circuit.h"
#include "relay/deliver/suspect.h"

#include <stdlib.h>

#define PROBE_POLL_US (20 * MS_US)

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

void outlet_close(struct outlet *outlet)
{
    if (!outlet)
        return;
    sink_close(outlet->sink);
    while (outlet->routes.first)
        route_circuit_forget(&outlet->routes, outlet->routes.first);
    keyset_done(&outlet->suspects);
    free(outlet);
}

int64_t outlet_most_in_flight(const struct outlet *outlet)
{
    int64_t configured = outlet->config->max_in_flight, wanted = (int64_t)outlet->sink->in_flight_max;
    return wanted && wanted < configured ? wanted : configured;
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
    return instant_min(at, route_circuits_wake_at(&outlet->routes));
}

size_t outlet_places(const struct outlet *outlet)
{
    size_t configured = (size_t)outlet->config->max_in_flight, keys = outlet->sink->keys_max;
    return keys && keys < configured ? keys : configured;
}

bool outlet_has_room(const struct outlet *outlet)
{
    return !outlet->ready && outlet->sink->in_flight < (size_t)outlet_most_in_flight(outlet);
}

int64_t outlet_room(const struct outlet *outlet, int64_t places)
{
    int64_t taken = (int64_t)(outlet->sink->in_flight + outlet->ready_count), most = outlet_most_in_flight(outlet);
    most = places < most ? places : most;
    return taken < most ? most - taken : 0;
}

int64_t outlet_keys_wanted(struct outlet *outlet, struct span destination, instant_us now)
{
    struct route_circuit *only = destination.data ? route_circuit_find(&outlet->routes, destination) : NULL;
    struct circuit *circuit = &outlet->circuit;
    if (circuit_turn(circuit, now) == CIRCUIT_CLOSED && only)
        circuit = &only->circuit;
    if (circuit_turn(circuit, now) == CIRCUIT_CLOSED)
        return outlet->sink->keys_max > 0 ? (int64_t)outlet->sink->keys_max : INT64_MAX;
    return circuit_lets_go(circuit) && (circuit != &outlet->circuit || outlet_has_room(outlet)) ? 1 : 0;
}
