/* relay/pace.h -- when a queue is claimed from again.
 *
 * A queue is polled: soon after a claim that found something, ever later while there is nothing. Behind a claim that
 * took all that there was, none comes for any reason until there can be something worth its cost. With a rate, what a
 * claim brings has its time before the next one. */
#ifndef RELAY_PACE_H
#define RELAY_PACE_H

#include "relay/queue.h"

/* A claim is on its way. */
void pace_sent(const struct claim *claim, instant_us now);

/* `batch` is what the claim has brought; sets the queue's poll_at and pace_at. */
void pace_claimed(const struct claim *claim, const struct batch *batch, instant_us now);

#endif
