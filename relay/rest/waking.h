/* relay/rest/waking.h -- the waking connection: one for all queues of a relay. It listens, and holds the locks that
 * tell producers to notify (rest.h).
 *
 * It is opened when the first queue is to rest. Behind a pooler that shares sessions it is of no use, and no queue
 * rests. */
#pragma once

#include "relay/base/log.h"
#include "relay/base/pollset.h"
#include "relay/config/config.h"

struct queue;
struct waking;

/* All borrowed; the queues may still be opened afterwards. */
struct waking *waking_new(const struct config *process, struct queue *const *queues, size_t queue_count, uint64_t seed);
void waking_free(struct waking *waking); /* NULL is a no-op */
void waking_prepare(struct waking *waking, struct pollset *ps);

/* One turn: wakes queues, answers those that wait for their locks. */
void waking_ready(struct waking *waking, const struct pollset *ps, instant_us now);
