/* relay/side/side.h -- the queue's other connection.
 *
 * The side connection's transactions are short: it settles lanes that must not wait for the end of a claim, or that a
 * lost claim left behind, and between that it asks how far ids are settled. */
#pragma once

#include "relay/base/clock.h"
#include "relay/postgres/db.h"
#include "relay/settle/round.h"

struct pollset;
struct queue;

void side_open(struct queue *queue);
void side_close(struct queue *queue);
void side_prepare(struct queue *queue, struct pollset *ps, instant_us now);

/* With leases: before anything is sent, learns whether the backend is lost with which the leases end. */
void side_hear(struct queue *queue, const struct pollset *ps, instant_us now);

/* One turn: takes results, starts the most urgent thing there is to do. */
void side_ready(struct queue *queue, const struct pollset *ps, instant_us now);
