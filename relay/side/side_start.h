/* relay/side/side_start.h -- what is sent on the queue's other connection, which is idle: each a round of its own. */
#pragma once

#include "relay/queue/queue.h"

struct settle_job;

void side_start_settlement(struct queue *queue, struct settle_job *job, instant_us now); /* owns the job */
void side_start_probe(struct queue *queue, instant_us now);
void side_start_check(struct queue *queue);
void side_start_peek(struct queue *queue);
void side_start_upkeep(struct queue *queue, instant_us now);
void side_start_rest_question(struct queue *queue);
void side_start_renewal(struct queue *queue, instant_us now);

/* The next statement of a search, unless there is none, or the last round was one: what else is due comes between. */
bool side_start_search(struct queue *queue, instant_us now);
