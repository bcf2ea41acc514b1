/* relay/claim/listen.h -- LISTEN on a connection of its own, as a hint to look now.
 *
 * A notification only moves the next poll forward. While the connection is down, or never comes up (a pooler), polling
 * goes on as without it, and one more poll follows every reconnect, because notifications sent meanwhile are lost. */
#pragma once

#include "relay/base/pollset.h"
#include "relay/queue/queue.h"

struct listener;

/* NULL when the queue does not listen. */
struct listener *listener_new(struct queue *queue);
void listener_free(struct listener *listener); /* NULL is a no-op */
void listener_prepare(struct listener *listener, struct pollset *ps);
void listener_ready(struct listener *listener, const struct pollset *ps, instant_us now);
