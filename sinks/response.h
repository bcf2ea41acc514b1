/* sinks/response.h -- what a destination answers to one event, kept for the queue that it goes on to.
 *
 *   response_new (the engine) -> response_add* (the sink, until the verdict) -> read (the engine) */
#pragma once

#include "relay/base/arena.h"

struct response {
    struct arena *arena; /* the delivery's */
    size_t max;          /* bytes */
    bool cut;            /* there was more than that, and what is here is of no use */
    char *data;
    size_t size, room;
};

/* In the arena, which gets at most twice `max` bytes for it. */
struct response *response_new(struct arena *arena, size_t max);

void response_add(struct response *response, struct span bytes);

/* Absent when nothing was answered. */
static inline struct span response_span(const struct response *response)
{
    return (struct span){response->data, response->size};
}
