/* relay/base/backoff.h -- how long to wait after the n-th failure in a row.
 *
 * Exponential with full jitter: uniform in (0, min(max, base * 2^(n-1))], never under 1 ms, so that a crowd of
 * clients spreads out. Randomness is a parameter. */
#pragma once

#include <stdint.h>

/* A small seeded generator (splitmix64); not for secrets. */
struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *rng);

struct backoff {
    int64_t base_us, max_us;
};

/* `failures` counts from 1. Returns microseconds to wait. */
int64_t backoff_delay_us(const struct backoff *backoff, unsigned failures, struct rng *rng);
