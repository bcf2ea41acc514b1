#include "relay/base/clock_monotonic.h"

struct timespec clock_monotonic_at(instant_us at)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t us = (int64_t)now.tv_sec * SECOND_US + now.tv_nsec / 1000 + (at - clock_now());
    return (struct timespec){.tv_sec = us / SECOND_US, .tv_nsec = us % SECOND_US * 1000};
}
