/* relay/route/route.h -- each event that was claimed gets its destination, and its lane goes to the sink. */
#pragma once

#include "relay/queue/queue.h"

/* Gives every event that has arrived its destination and hands its lane to the outlet. */
void route_claimed(struct queue *queue);
