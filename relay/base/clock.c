#include "relay/base/clock.h"

#include <time.h>

static int64_t read_us(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (int64_t)ts.tv_sec * SECOND_US + ts.tv_nsec / 1000;
}

instant_us clock_now(void)
{
    return read_us(CLOCK_BOOTTIME);
}

int64_t clock_wall_us(void)
{
    return read_us(CLOCK_REALTIME);
}
