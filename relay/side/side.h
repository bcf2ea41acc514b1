/* relay/side/side.h -- the queue's other connection.
 *
 * Its transactions are short: it settles what must not wait for the end of a claim, or what a lost claim left
 * behind, and between that it asks how far ids are settled. */
#pragma once

#include "relay/base/clock.h"
#include "relay/postgres/db.h"
#include "relay/settle/round.h"

struct pollset;
struct queue;

void side_open(struct queue *queue);
void side_close(struct queue *queue);
void side_prepare(struct queue *queue, struct pollset *ps, instant_us now);

/* Before anything is sent, what has arrived is heard: with leases, that the backend is lost with which they end. */
void side_hear(struct queue *queue, const struct pollset *ps, instant_us now);

/* One turn: takes results, starts the most urgent thing there is to do. */
void side_ready(struct queue *queue, const struct pollset *ps, instant_us now);
