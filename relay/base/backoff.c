#include "relay/base/backoff.h"

#define DELAY_MIN_US INT64_C(1000)

uint64_t rng_next(struct rng *rng)
{
    uint64_t z = (rng->state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

int64_t backoff_delay_us(const struct backoff *backoff, unsigned failures, struct rng *rng)
{
    int64_t ceiling = backoff->base_us;
    for (unsigned i = 1; i < failures && ceiling < backoff->max_us; i++)
        ceiling = ceiling > backoff->max_us / 2 ? backoff->max_us : ceiling * 2;
    if (ceiling > backoff->max_us)
        ceiling = backoff->max_us;
    if (ceiling <= DELAY_MIN_US)
        return DELAY_MIN_US;
    return DELAY_MIN_US + (int64_t)(rng_next(rng) % (uint64_t)(ceiling - DELAY_MIN_US + 1));
}
