/* relay/bench/bench_load.h -- producers that insert events at a steady rate, in somebody else's poll loop.
 *
 *   bench_load_new -> (bench_load_prepare -> wait -> bench_load_turn)* -> bench_load_free */
#pragma once

#include "relay/base/pollset.h"
#include "relay/bench/bench.h"

struct bench_load {
    struct bench *bench;
    struct load_producer *producers;
    char *sql;
    size_t up;
    int64_t sent, inserted;
    instant_us begun_at;        /* 0: not yet */
    int64_t wall_ahead_us;      /* the wall clock, seen from `now` */
    instant_us ended_at;        /* when the last one was committed */
    struct histogram insert_us; /* sent to committed */
};

struct bench_load *bench_load_new(struct bench *bench);
void bench_load_free(struct bench_load *load);

bool bench_load_is_connected(const struct bench_load *load);

/* The first event is due; in options.seconds it is over. */
void bench_load_begin(struct bench_load *load, instant_us now);

/* It has begun, and no more events will be sent; what was sent is committed. */
bool bench_load_is_over(const struct bench_load *load, instant_us now);

void bench_load_prepare(struct bench_load *load, struct pollset *ps, instant_us now);
bool bench_load_turn(struct bench_load *load, const struct pollset *ps, instant_us now, struct error *err) MUST_CHECK;
