/* relay/bench/bench_result.h -- what a bench has found out, for people and for programs. */
#pragma once

#include "relay/bench/bench.h"
#include "relay/bench/bench_relay.h"

#define BENCH_PAIRS_MAX 99

/* One drain by the floor and one by the relay, of the same events one after the other, in events/s. */
struct bench_pair {
    double floor, relay;
};

struct bench_result {
    struct bench_server server;
    struct bench_pair pairs[BENCH_PAIRS_MAX];
    size_t pair_count;
    bool has_latency;
    struct bench_latency latency;
};

/* One line on standard error, with the remedy, if a drain took less than a second: its rate is noise, and so is its
 * ratio to the other. */
void bench_result_warn(const struct bench *bench, const struct bench_result *result);

/* A table on standard output. */
void bench_result_print(const struct bench *bench, const struct bench_result *result);

/* The same as one JSON document. */
void bench_result_print_json(const struct bench *bench, const struct bench_result *result);

/* A number with its thousands apart; `text` holds it. */
#define BENCH_NUMBER_SIZE 32
const char *bench_number(double value, char *text);
