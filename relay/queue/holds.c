#include "relay/queue/holds.h"

#include "relay/base/arena.h"
#include "relay/queue/batch.h"

#include <stdlib.h>

#define OTHER_LISTS 2 /* beside those of the claims */

void holds_init(struct holds *holds, size_t claim_count)
{
    holds->claim_count = claim_count;
    holds->claimed = memory_array(claim_count, sizeof *holds->claimed);
}

void holds_done(struct holds *holds)
{
    struct holds_walk walk = holds_walk(holds);
    for (struct batch *batch; (batch = holds_next(&walk));)
        batch_free(batch);
    free(holds->claimed);
}

static struct batch *list_at(const struct holds *holds, size_t i)
{
    if (i < holds->claim_count)
        return *holds->claimed[i];
    return i == holds->claim_count ? holds->leased : holds->orphans;
}

struct holds_walk holds_walk(const struct holds *holds)
{
    return (struct holds_walk){.holds = holds};
}

struct batch *holds_next(struct holds_walk *walk)
{
    size_t count = walk->holds->claim_count + OTHER_LISTS;
    while (!walk->next && walk->lists < count)
        walk->next = list_at(walk->holds, walk->lists++);
    struct batch *batch = walk->next;
    if (batch)
        walk->next = batch->next;
    return batch;
}

bool holds_are_empty(const struct holds *holds)
{
    struct holds_walk walk = holds_walk(holds);
    return holds_next(&walk) == NULL;
}

void holds_push(struct batch **list, struct batch *batch)
{
    batch->next = *list;
    *list = batch;
}

struct batch *holds_pop(struct batch **list)
{
    struct batch *batch = *list;
    *list = batch->next;
    return batch;
}
