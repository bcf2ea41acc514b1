/* tests/simulation/failure.h -- how statements of the simulated server fail. */
#ifndef TESTS_SIMULATION_FAILURE_H
#define TESTS_SIMULATION_FAILURE_H

#include <stdbool.h>
#include <stddef.h>

struct failure {
    const char *sqlstate;
    bool fatal; /* the session ends */
};

extern const struct failure failures[];
extern const size_t failure_count;

bool failure_ends_session(const char *sqlstate); /* NULL: false */

#endif
