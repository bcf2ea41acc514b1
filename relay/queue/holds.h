/* relay/queue/holds.h -- the batches of a queue, in one list for each holder: every claim, the leases, the orphans.
 *
 * A batch is in one list at a time. Code that looks at all batches of the queue walks by holds_next(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct batch;

/* Written by relay/hold/, relay/side/side.c, relay/queue_open.c, relay/queue/holds.c only. */
struct holds {
    struct batch ***claimed; /* one a claim: its list, which stands in struct claim */
    size_t claim_count;
    struct batch *leased;  /* held by leases: see relay/hold/lease.h */
    struct batch *orphans; /* their claim is lost: see relay/hold/orphan.h */
};

/* A walk over all batches: those of the claims first, then what is leased, then the orphans.
 *
 *     struct holds_walk walk = holds_walk(&queue->holds);
 *     for (struct batch *batch; (batch = holds_next(&walk));)
 *
 * The batch that holds_next() has returned may leave its list, or be freed. */
struct holds_walk {
    const struct holds *holds;
    struct batch *next;
    size_t lists; /* that are begun */
};

struct holds_walk holds_walk(const struct holds *holds);
struct batch *holds_next(struct holds_walk *walk); /* NULL: that were all */

void holds_init(struct holds *holds, size_t claim_count);
void holds_done(struct holds *holds); /* with every batch that is left */

/* No batch is held. */
bool holds_are_empty(const struct holds *holds);

/* Puts `batch`, which is in no list, at the head of a list; takes it from the head of one. */
void holds_push(struct batch **list, struct batch *batch);
struct batch *holds_pop(struct batch **list);
