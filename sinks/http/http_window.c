#include "sinks/http/http_window.h"

/* Fewer are no cheaper, and receiver and relay begin to wait for each other. */
#define LIMIT_MIN 32

/* A wait is worth noticing from here on. */
#define PATIENCE_US MS_US

/* The loop waits for more than this share of its time: a wider window would fill it. */
#define WAITS_TO_WIDEN 4
/* For less than this, while all in flight were answered so many times over: a narrower one still fills it. A slow
 * receiver that answers all at once has the loop wait between any two answers to the same place. */
#define WAITS_TO_SHRINK 16
#define ROUNDS_TO_SHRINK 4

void http_window_init(struct http_window *window, size_t max)
{
    *window = (struct http_window){.limit = max, .max = max};
}

instant_us http_window_wait(struct http_window *window, size_t in_flight)
{
    window->full = in_flight >= window->limit;
    return window->full && window->limit < window->max ? window->turned_at + PATIENCE_US : INSTANT_NEVER;
}

/* Doubled, as events wait meanwhile. */
static size_t wider(const struct http_window *window)
{
    return window->limit < window->max / 2 ? window->limit * 2 : window->max;
}

/* By a quarter, so as not to miss the size that just does. */
static size_t narrower(const struct http_window *window)
{
    size_t limit = window->limit - window->limit / 4;
    if (window->limit <= LIMIT_MIN)
        return window->limit;
    return limit > LIMIT_MIN ? limit : LIMIT_MIN;
}

void http_window_turn(struct http_window *window, size_t answers, int64_t waited_us, instant_us now)
{
    instant_us before = window->turned_at;
    window->turned_at = now;
    if (!window->full || before == 0)
        return;
    window->answers += answers;
    window->elapsed_us += now - before;
    window->waited_us += waited_us;
    if (window->waited_us >= PATIENCE_US && window->waited_us * WAITS_TO_WIDEN >= window->elapsed_us)
        window->limit = wider(window);
    else if (window->answers < ROUNDS_TO_SHRINK * window->limit)
        return;
    else if (window->waited_us * WAITS_TO_SHRINK < window->elapsed_us)
        window->limit = narrower(window);
    window->answers = 0;
    window->elapsed_us = window->waited_us = 0;
}
