/* relay/bench_floor.h -- how fast can the table be emptied at all? */
#ifndef RELAY_BENCH_FLOOR_H
#define RELAY_BENCH_FLOOR_H

#include "relay/bench.h"

/* Runs sql/bench/bench_floor.sql on options.connections connections, each again and again until it returns no row, and
 * does nothing with the rows. Events a second, from the first statement, when all are connected, to the last result. */
bool bench_floor(struct bench *bench, double *ret_per_second, struct error *err) MUST_CHECK;

#endif
