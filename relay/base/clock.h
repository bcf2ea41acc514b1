/* relay/base/clock.h -- time as a value.
 *
 * instant_us is microseconds on CLOCK_BOOTTIME: local deadlines never jump when somebody sets the
 * clock, and the time that the machine is suspended counts, as it does for the database. Wall time is microseconds
 * since 1970 UTC and is only shown or sent, never waited for. Only main.c and the loop read a clock; everything below
 * takes `now`. */
#pragma once

#include <stdint.h>

typedef int64_t instant_us;

#define INSTANT_NEVER INT64_MAX
#define MS_US INT64_C(1000)
#define SECOND_US INT64_C(1000000)
#define MINUTE_US (60 * SECOND_US)
#define HOUR_US (60 * MINUTE_US)
#define DAY_US (24 * HOUR_US)

instant_us clock_now(void);
int64_t clock_wall_us(void);

static inline instant_us instant_min(instant_us a, instant_us b)
{
    return a < b ? a : b;
}
