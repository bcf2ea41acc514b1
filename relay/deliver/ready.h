/* relay/deliver/ready.h -- the lanes of an outlet that have events to send, and how many of each are sent at once.
 *
 * One event of a key at a time, unless the sink keeps the order of a key or takes runs. A run costs a sink more than as
 * many events of as many keys, so there are runs only where the lanes alone would leave room. */
#pragma once

#include "relay/deliver/outlet.h"
#include "relay/queue/queue.h"

void ready_add(struct outlet *outlet, struct lane *lane);       /* at the end of the list */
void ready_add_first(struct outlet *outlet, struct lane *lane); /* its events were taken and not sent: it is next */
void ready_remove(struct outlet *outlet, struct lane *lane);

/* An event that no sink needs to see: too large, or without a destination. */
static inline bool ready_is_refused(const struct item *item)
{
    return item->delivery.verdict == VERDICT_REJECTED || item->event.oversize_bytes > 0;
}

/* Takes a ready lane off the list and puts as much of it as may be in flight, at most `room`, into `ds`; returns how
 * many. */
size_t ready_take(struct outlet *outlet, struct lane *lane, struct delivery **ds, size_t room, instant_us now);

/* One event of ready_take() is not in flight any more. */
void ready_returned(struct outlet *outlet, struct lane *lane);
