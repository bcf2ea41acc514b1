#include "relay/deliver/circuit.h"

#include <stddef.h>

/* Short enough that a destination that is back gets events again within seconds. */
static const struct backoff wait = {.base_us = 200 * MS_US, .max_us = 2 * SECOND_US};

static void open_again(struct circuit *circuit, instant_us now, int64_t wait_us, struct rng *rng)
{
    circuit->failures++;
    circuit->state = CIRCUIT_OPEN;
    circuit->retry_at = now + (wait_us > 0 ? wait_us : backoff_delay_us(&wait, circuit->failures, rng));
}

bool circuit_fail(struct circuit *circuit, const void *delivery, int64_t wait_us, instant_us now, struct rng *rng)
{
    bool was_closed = circuit->state == CIRCUIT_CLOSED;
    if (was_closed)
        circuit->opened_at = now;
    /* Other failures are of deliveries that were sent before the circuit opened: they say nothing new. */
    if (was_closed || (circuit->state == CIRCUIT_HALF_OPEN && circuit->trial_delivery == delivery))
        open_again(circuit, now, wait_us, rng);
    return was_closed;
}

bool circuit_ack(struct circuit *circuit)
{
    bool was_open = circuit->state != CIRCUIT_CLOSED;
    circuit->state = CIRCUIT_CLOSED;
    circuit->failures = 0;
    return was_open;
}

enum circuit_state circuit_turn(struct circuit *circuit, instant_us now)
{
    if (circuit->state == CIRCUIT_OPEN && now >= circuit->retry_at)
        circuit->state = CIRCUIT_PROBING;
    return circuit->state;
}

void circuit_probed(struct circuit *circuit, bool reachable, instant_us now, struct rng *rng)
{
    if (circuit->state != CIRCUIT_PROBING)
        return;
    if (reachable)
        circuit->state = CIRCUIT_HALF_OPEN;
    else
        open_again(circuit, now, 0, rng);
}

bool circuit_lets_go(const struct circuit *circuit)
{
    return circuit->state == CIRCUIT_CLOSED || (circuit->state == CIRCUIT_HALF_OPEN && !circuit->trial_delivery);
}

bool circuit_begin_trial(struct circuit *circuit, const void *delivery)
{
    if (circuit->state != CIRCUIT_HALF_OPEN)
        return false;
    circuit->trial_delivery = delivery;
    return true;
}

void circuit_end_trial(struct circuit *circuit, const void *delivery)
{
    if (circuit->trial_delivery == delivery)
        circuit->trial_delivery = NULL;
}
