/* tests/simulation/producer.h -- the services that insert events: several transactions at once, which commit late, out
 * of the order of their ids, or not at all. */
#ifndef TESTS_SIMULATION_PRODUCER_H
#define TESTS_SIMULATION_PRODUCER_H

#include "relay/base/clock.h"

#include <stdbool.h>

void producers_clear(void);
instant_us producers_next(void);
void producers_step(void);
bool producers_are_done(void);

/* The server has gone down. */
void producers_abort(void);

#endif
