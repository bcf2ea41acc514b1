/* relay/deliver/route_circuit.h -- the circuits of single destinations of a sink, of the troubled ones only. */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/span.h"
#include "relay/deliver/circuit.h"

#include <stddef.h>

/* A destination that does not exist or refuses us, apart from its sink. */
struct route_circuit {
    char *destination;
    struct circuit circuit;
    struct route_circuit *next;
};

/* Those of one sink. */
struct route_circuits {
    struct route_circuit *first;
    size_t count;
};

/* Remembered at once; beyond that, the one whose wait ended longest ago is forgotten. */
#define ROUTE_CIRCUITS_MAX 1000

/* NULL when the destination is not known to be troubled. */
struct route_circuit *route_circuit_find(const struct route_circuits *circuits, struct span destination);

/* Makes a closed one when there is none. Never NULL. */
struct route_circuit *route_circuit_take(struct route_circuits *circuits, struct span destination);

/* The destination is well, or the outlet is being closed. */
void route_circuit_forget(struct route_circuits *circuits, struct route_circuit *route);

/* Moves all on. One that has been ready for its trial for long, and no event came for it, is forgotten. */
void route_circuits_turn(struct route_circuits *circuits, struct rng *rng, instant_us now);

/* When the first wait is over; INSTANT_NEVER: none is under way. */
instant_us route_circuits_wake_at(const struct route_circuits *circuits);
