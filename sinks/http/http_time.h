/* sinks/http/http_time.h -- when the time of a request is up.
 *
 * By a clock of the sink's own, on which no turn of the loop takes longer than HTTP_TURN_MAX_US. While the process
 * stands still its requests are answered, and the answers lie in their sockets. So nothing is given up before a turn
 * has read them; and a request that such a turn was sending does not lose the time in which nobody looked.
 *
 *   http_time_init -> (http_time_begin* -> http_time_wait -> poll(2) -> http_time_turn -> all I/O ->
 *   (http_time_is_due -> http_time_is_up of each request)?)* */
#pragma once

#include "relay/base/clock.h"

#include <stdbool.h>

#define HTTP_TURN_MAX_US SECOND_US

struct http_time {
    instant_us turned_at; /* by the relay's clock; 0: not yet */
    int64_t elapsed_us;   /* by ours */
    int64_t due_us;       /* by ours: the next request's time is not up before; INSTANT_NEVER: there is none */
};

void http_time_init(struct http_time *time);

/* A request begins that is given so long. Returns when its time is up, by the sink's clock. */
int64_t http_time_begin(struct http_time *time, int64_t timeout_us, instant_us now);

/* By when the loop has to come back. */
instant_us http_time_wait(const struct http_time *time);

/* A turn of the loop begins. */
void http_time_turn(struct http_time *time, instant_us now);

/* True when the time of some request may be up: then each that has no answer is asked for. */
bool http_time_is_due(struct http_time *time);
bool http_time_is_up(struct http_time *time, int64_t up_us);
