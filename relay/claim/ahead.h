/* relay/claim/ahead.h -- how far a queue claims ahead of its sink.
 *
 * Claimed events wait for the sink in the order of the claims. So an event that comes meanwhile waits behind all of
 * them, however urgent, and so does one that is older than a claimed key's later events. For a sink that is slow and
 * behind, claims are small: they cost little beside it. For a fast one no event waits long: large claims cost less. */
#pragma once

#include "relay/base/clock.h"
#include "relay/queue/queue_parts.h"

#include <stdbool.h>
#include <stdint.h>

struct queue;

/* Once a turn, before anything is claimed. */
void ahead_turn(struct queue *queue, instant_us now);

/* The sink is slow, and more keys wait for it than it has places: a claim asks for one event of each key. */
bool ahead_is_behind(const struct queue *queue, instant_us now);

/* How many events may be under way or wait for a sink that has few places, where they may take long: as many as it has
 * places, so that other relays have the rest, and what comes meanwhile and is more urgent does not wait. A few more
 * while they are brief. For any other sink: any number. */
int64_t ahead_places(const struct queue *queue);

/* How many keys may be claimed now for such a sink, or for one that takes few events a second, one of a key at a time:
 * `open` lanes are claimed and not finished. 0 as well while there is little room. For any other sink: any number. */
int64_t ahead_room(const struct queue *queue, int64_t open);

/* Its claims are sent one after the other, for such a sink. */
bool ahead_takes_turns(const struct queue *queue);
