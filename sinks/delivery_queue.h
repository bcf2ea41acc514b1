/* sinks/delivery_queue.h -- deliveries in order, linked through delivery.next. All zero is empty. */
#pragma once

#include "sinks/delivery.h"

struct delivery_queue {
    struct delivery *first, *last;
};

static inline void delivery_queue_push(struct delivery_queue *queue, struct delivery *d)
{
    d->next = NULL;
    if (queue->first)
        queue->last->next = d;
    else
        queue->first = d;
    queue->last = d;
}

static inline void delivery_queue_push_front(struct delivery_queue *queue, struct delivery *d)
{
    d->next = queue->first;
    queue->first = d;
    if (!d->next)
        queue->last = d;
}

/* NULL when empty. */
static inline struct delivery *delivery_queue_pop(struct delivery_queue *queue)
{
    struct delivery *d = queue->first;
    if (d)
        queue->first = d->next;
    return d;
}
