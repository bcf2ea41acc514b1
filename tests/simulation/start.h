/* tests/simulation/start.h -- what start.c gives to the processes that it surrounds. */
#ifndef TESTS_SIMULATION_START_H
#define TESTS_SIMULATION_START_H

/* For relay_options.signal_fd: reading it takes what process_stop() has sent. */
#define START_SIGNAL_FD (1 << 24)

#endif
