/* relay/queue_open.h -- a queue with all that works on it: opened, closed, and handing on to the next one. */
#pragma once

#include "relay/queue/queue.h"

struct queue_options {
    const struct config *process;
    const struct queue_config *config;
    struct outlet *outlet;
    const struct log *log;
    uint64_t seed;
};

/* Blocking, at start-up: reads the table from the catalogue with `conn`, prepares everything, connects nothing. What
 * the options point at must outlive the queue. NULL and *err on failure. */
struct queue *queue_open(const struct queue_options *options, PGconn *conn, struct error *err) MUST_CHECK;
void queue_close(struct queue *queue); /* NULL is a no-op; rolls back what is open */

/* Wakes the queue that got what was delivered. */
void queue_hand_on(struct queue *queue, instant_us now);
