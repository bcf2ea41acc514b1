/* relay/queue_run.h -- a queue at work: its connections are opened, and the steps of a turn that concern all of them.
 */
#ifndef RELAY_QUEUE_RUN_H
#define RELAY_QUEUE_RUN_H

#include "relay/queue.h"

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

/* There is something to claim: it looks at once. */
void queue_wake(struct queue *queue, instant_us now);

/* Wakes the queue that got what was delivered. */
void queue_hand_on(struct queue *queue, instant_us now);

/* Gives every event that has arrived its destination and hands its lane to the outlet. */
void queue_route_claimed(struct queue *queue);

/* Ends every claim whose lanes are all finished. */
void queue_settle_resolved(struct queue *queue, instant_us now);

/* Nothing is claimed, in flight or waiting to be settled. */
bool queue_is_quiet(const struct queue *queue);

/* It has no event, and asks for some in vain. Not while the database or a destination is away: then nobody knows. */
bool queue_is_idle(const struct queue *queue);

#endif
