/* relay/deliver/circuit.h -- leave a destination alone that is down, and find out when it is back.
 *
 *   closed --failure--> open --wait is over, probe says yes--> trial --ack--> closed
 *                        ^------ probe says no, the trial fails ------'
 *
 * Pure: time and randomness are parameters. */
#pragma once

#include "relay/base/backoff.h"
#include "relay/base/clock.h"

#include <stdbool.h>

enum circuit_state {
    CIRCUIT_CLOSED,  /* everything may go */
    CIRCUIT_OPEN,    /* nothing goes before retry_at */
    CIRCUIT_PROBING, /* the wait is over; ask the sink whether the destination is there */
    CIRCUIT_TRIAL    /* one delivery at a time, until one is acked */
};

struct circuit {
    enum circuit_state state;
    unsigned failures; /* in a row */
    instant_us retry_at, opened_at;
    uint64_t told; /* report.h's: the cause that is in the log, as a hash, and since when */
    instant_us told_at;
    const void *trial; /* the delivery that is being tried; a name, never followed; NULL: none */
};

/* A failure of `delivery` that is the destination's. `wait_us` is what it asked for, 0 if nothing. True when the
 * circuit was closed before: worth a line in the log. */
bool circuit_fail(struct circuit *circuit, const void *delivery, int64_t wait_us, instant_us now, struct rng *rng);

/* A delivery was acked. True when the circuit was not closed before. */
bool circuit_ack(struct circuit *circuit);

/* Moves an open circuit on when its wait is over; returns the state. */
enum circuit_state circuit_turn(struct circuit *circuit, instant_us now);

/* The answer to a probe. */
void circuit_probed(struct circuit *circuit, bool reachable, instant_us now, struct rng *rng);

/* May a delivery go now? */
bool circuit_lets_go(const struct circuit *circuit);

/* `delivery` goes: true when it is the trial, so that no other may go before circuit_end_trial(). */
bool circuit_begin_trial(struct circuit *circuit, const void *delivery);

/* `delivery` has had its verdict, and circuit_fail() or circuit_ack() was told; or it did not go after all. */
void circuit_end_trial(struct circuit *circuit, const void *delivery);
