/* relay/deliver/circuit.h -- a circuit breaker: nothing is sent to a destination that is down, until it is back.
 *
 *   closed --failure--> open --wait is over, probe says yes--> half-open --ack--> closed
 *                        ^------ probe says no, the trial fails --------'
 *
 * Pure: time and randomness are parameters. */
#pragma once

#include "relay/base/backoff.h"
#include "relay/base/clock.h"

#include <stdbool.h>

enum circuit_state {
    CIRCUIT_CLOSED,   /* everything may be sent */
    CIRCUIT_OPEN,     /* nothing is sent before retry_at */
    CIRCUIT_PROBING,  /* the wait is over; ask the sink whether the destination is there */
    CIRCUIT_HALF_OPEN /* one trial delivery at a time, until one is acked */
};

struct circuit {
    enum circuit_state state;
    unsigned failures; /* in a row */
    instant_us retry_at, opened_at;
    uint64_t logged_cause; /* the last one, as a hash, and when it was logged: see circuit_report.h */
    instant_us logged_at;
    const void *trial_delivery; /* under way; a name, never followed; NULL: none */
};

/* A failure of `delivery` that is the destination's. `wait_us` is the wait that it asked for, or 0. True when the
 * circuit was closed before: worth a line in the log. */
bool circuit_fail(struct circuit *circuit, const void *delivery, int64_t wait_us, instant_us now, struct rng *rng);

/* A delivery was acked. True when the circuit was not closed before. */
bool circuit_ack(struct circuit *circuit);

/* Moves an open circuit on when its wait is over; returns the state. */
enum circuit_state circuit_turn(struct circuit *circuit, instant_us now);

/* The answer to a probe. */
void circuit_probed(struct circuit *circuit, bool reachable, instant_us now, struct rng *rng);

/* May a delivery be sent now? */
bool circuit_lets_go(const struct circuit *circuit);

/* `delivery` is sent: true when it is the trial, so that no other may be sent before circuit_end_trial(). */
bool circuit_begin_trial(struct circuit *circuit, const void *delivery);

/* `delivery` has had its verdict, behind circuit_fail() or circuit_ack(); or the sink did not take it. */
void circuit_end_trial(struct circuit *circuit, const void *delivery);
