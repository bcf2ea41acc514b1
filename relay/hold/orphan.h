/* relay/hold/orphan.h -- the queue's orphans: batches whose claim has lost its locks.
 *
 * No more event of them is sent, and they stay until their acked events are settled (relay/side/side.c). */
#pragma once

#include "relay/queue/queue.h"

/* Of a claim's batches: the locks of its transaction are lost, and its session's locks only with `session`. Lanes of
 * the same keys in other batches are given back. */
void orphan_make(struct queue *queue, struct batch **held, bool session, instant_us now);

/* A claim of ours that was on its way when another one was lost, or that arrived before we heard of it, may have got
 * the other's keys. We know better than the table what became of their events, so these lanes are given back. */
void orphan_drop(const struct queue *queue, struct batch *claimed, instant_us now);

/* Frees orphans that are settled, unless a claim that was sent before that may still bring their events again. */
void orphan_free(struct queue *queue);
