/* relay/bench/bench_relay.h -- what a relay makes of the bench's table: the loop of `pgcourier run`, in this process.
 */
#pragma once

#include "relay/bench/bench.h"

/* Would one start? Asked before the first fill, which may take long: it may be short of locks, say. */
bool bench_relay_check(struct bench *bench, struct error *err) MUST_CHECK;

/* Drains the filled table. Events a second, from the sending of the first claim until the answer to the COMMIT that
 * takes the last row out of the table. */
bool bench_relay_drain(struct bench *bench, double *ret_per_second, struct error *err) MUST_CHECK;

struct bench_latency {
    double p50_ms, p99_ms;               /* from the INSERT's start to the sink's ack */
    double insert_p50_ms, insert_p99_ms; /* of the INSERT alone, until it is committed */
    double rate;                         /* events/s that were inserted */
};

/* Delivers a steady load from the empty table. */
bool bench_relay_latency(struct bench *bench, struct bench_latency *ret, struct error *err) MUST_CHECK;
