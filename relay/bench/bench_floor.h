/* relay/bench/bench_floor.h -- how fast can the table be emptied at all? */
#pragma once

#include "relay/bench/bench.h"

/* How many rows of such a payload a statement of the floor takes: 1,000, or fewer where that would be too much memory,
 * as each of its results is held whole. */
int64_t bench_floor_rows(int64_t payload_bytes);

/* Runs sql/bench/bench_floor.sql on options.connections connections, each again and again until it returns no row, and
 * does nothing with the rows. Events a second, from the first statement, when all are connected, to the last result
 * that has rows. */
bool bench_floor(struct bench *bench, double *ret_per_second, struct error *err) MUST_CHECK;
