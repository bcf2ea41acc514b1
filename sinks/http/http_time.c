#include "sinks/http/http_time.h"

void http_time_init(struct http_time *time)
{
    *time = (struct http_time){.due_us = INSTANT_NEVER};
}

instant_us http_time_wait(const struct http_time *time)
{
    if (time->due_us == INSTANT_NEVER)
        return INSTANT_NEVER;
    return time->turned_at + instant_min(time->due_us - time->elapsed_us, HTTP_TURN_MAX_US);
}

void http_time_turn(struct http_time *time, instant_us now)
{
    if (time->turned_at > 0)
        time->elapsed_us += instant_min(now - time->turned_at, HTTP_TURN_MAX_US);
    time->turned_at = now;
}

int64_t http_time_begin(struct http_time *time, int64_t timeout_us, instant_us now)
{
    http_time_turn(time, now); /* what has passed before is not its */
    int64_t up_us = time->elapsed_us + timeout_us;
    time->due_us = instant_min(time->due_us, up_us);
    return up_us;
}

bool http_time_is_due(struct http_time *time)
{
    bool due = time->due_us <= time->elapsed_us;
    if (due)
        time->due_us = INSTANT_NEVER; /* http_time_is_up() finds out anew */
    return due;
}

bool http_time_is_up(struct http_time *time, int64_t up_us)
{
    if (up_us <= time->elapsed_us)
        return true;
    time->due_us = instant_min(time->due_us, up_us);
    return false;
}
