/* tests/simulation/sink.h -- a destination that is late, refuses, loses replies, hangs or is away, and the network on
 * the way to it. What is under way arrives even when the relay that sent it is gone. */
#ifndef TESTS_SIMULATION_SINK_H
#define TESTS_SIMULATION_SINK_H

#include "sinks/sink.h"

extern const struct sink_type sim_sink, sim_sink_probing;

void network_clear(void);
instant_us network_next(void); /* the next arrival */
void network_step(void);

/* The destination is away for a while; `hangs`: it does not refuse but say nothing. */
void network_outage(int64_t for_us, bool hangs);

#endif
