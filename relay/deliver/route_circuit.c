#include "relay/deliver/route_circuit.h"

#include "relay/base/arena.h"

#include <stdlib.h>

/* After so long without an event, the next one may as well find out by itself. */
#define UNUSED_US (60 * SECOND_US)

struct route_circuit *route_circuit_find(const struct route_circuits *circuits, struct span destination)
{
    struct route_circuit *route = circuits->first;
    while (route && !span_equal(span_of(route->destination), destination))
        route = route->next;
    return route;
}

void route_circuit_forget(struct route_circuits *circuits, struct route_circuit *route)
{
    struct route_circuit **link = &circuits->first;
    while (*link != route)
        link = &(*link)->next;
    *link = route->next;
    circuits->count--;
    free(route->destination);
    free(route);
}

static struct route_circuit *longest_ready(const struct route_circuits *circuits)
{
    struct route_circuit *oldest = circuits->first;
    for (struct route_circuit *route = oldest; route; route = route->next)
        if (route->circuit.retry_at < oldest->circuit.retry_at)
            oldest = route;
    return oldest;
}

struct route_circuit *route_circuit_take(struct route_circuits *circuits, struct span destination)
{
    struct route_circuit *route = route_circuit_find(circuits, destination);
    if (route)
        return route;
    if (circuits->count >= ROUTE_CIRCUITS_MAX)
        route_circuit_forget(circuits, longest_ready(circuits));
    route = memory_new(sizeof *route);
    route->destination = memory_new(destination.size + 1);
    if (destination.size > 0)
        memcpy(route->destination, destination.data, destination.size);
    route->next = circuits->first;
    circuits->first = route;
    circuits->count++;
    return route;
}

void route_circuits_turn(struct route_circuits *circuits, struct rng *rng, instant_us now)
{
    for (struct route_circuit *route = circuits->first, *next; route; route = next) {
        next = route->next;
        struct circuit *circuit = &route->circuit;
        /* A destination is tried with one of its own events: only that tells whether it takes them. */
        if (circuit_turn(circuit, now) == CIRCUIT_PROBING)
            circuit_probed(circuit, true, now, rng);
        if (circuit->state == CIRCUIT_HALF_OPEN && !circuit->trial_delivery && now - circuit->retry_at > UNUSED_US)
            route_circuit_forget(circuits, route);
    }
}

instant_us route_circuits_wake_at(const struct route_circuits *circuits)
{
    instant_us at = INSTANT_NEVER;
    for (const struct route_circuit *route = circuits->first; route; route = route->next)
        if (route->circuit.state == CIRCUIT_OPEN)
            at = instant_min(at, route->circuit.retry_at);
    return at;
}
