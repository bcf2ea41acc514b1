/* relay/relay_end.h -- when a relay ends by itself: nothing is left to deliver (--until-empty), or there was nothing to
 * do for so long (--exit-when-idle).
 *
 *   relay_end_begin -> (relay_end_check_at -> wait -> one turn -> relay_end_empty, relay_end_idle)* */
#pragma once

#include "relay/base/clock.h"

#include <stdbool.h>
#include <stddef.h>

struct queue;

struct ending {
    struct queue *const *queues; /* borrowed, all of the relay's */
    size_t queue_count;
    bool until_empty;
    int64_t idle_max_us; /* 0: it may be idle for ever */
    instant_us check_at; /* no table is asked before */
    instant_us busy_at;  /* there was something to do */
    int64_t check_interval_us;
};

/* With its first four fields set: the relay's first turn has come. */
void relay_end_begin(struct ending *ending, instant_us now);

/* Nothing is claimed, in flight or waiting to be settled in any queue. */
bool relay_end_is_quiet(const struct ending *ending);

/* When relay_end_empty() has something to ask; INSTANT_NEVER: it waits for something else than time. */
instant_us relay_end_check_at(const struct ending *ending);

/* It is to end as nothing is left: once all queues are quiet it asks their tables, ever later, until all answers are
 * "nothing". What nobody knows yet is not nothing. */
bool relay_end_empty(struct ending *ending, instant_us now);

/* It is to end as there was nothing to do for `idle_max_us`; *ret_us says for how long. */
bool relay_end_idle(struct ending *ending, instant_us now, int64_t *ret_us);
