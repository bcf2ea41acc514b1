/* sinks/http/http_window.h -- how many requests are worth having in flight.
 *
 * A slow receiver is kept busy by as many as are allowed. Where this process is the slower one, answers lie waiting for
 * it, and each request more is memory that has left the cache by the time its answer is looked at: with 256 in flight a
 * request costs a third more than with as few as keep it busy (docs/tried-and-lost.md). So the window begins wide,
 * shrinks as long as the loop always finds answers waiting, and widens as soon as the loop waits for them.
 *
 *   http_window_init -> (http_window_wait -> poll(2) -> http_window_turn)* */
#pragma once

#include "relay/base/clock.h"

#include <stdbool.h>
#include <stddef.h>

struct http_window {
    size_t limit; /* as many are worth it at present */
    size_t max;
    bool full;            /* when the loop last went to wait */
    instant_us turned_at; /* 0: not yet */
    /* Since the limit was last looked at, in turns that began with a full window. */
    size_t answers;
    int64_t elapsed_us, waited_us;
};

void http_window_init(struct http_window *window, size_t max);

/* So many are in flight, and the loop is about to wait. Returns by when it has to come back: a window that is too small
 * widens even if no answer comes. */
instant_us http_window_wait(struct http_window *window, size_t in_flight);

/* The loop has waited for so long, and found so many answers. */
void http_window_turn(struct http_window *window, size_t answers, int64_t waited_us, instant_us now);
