/* relay/claim/peek.h -- an idle queue looks whether there is anything to claim before it claims.
 *
 * A claim is a transaction of five statements, too many for a queue without events. Behind a claim that found
 * nothing, one small statement on the side connection asks first, and the claim follows at once when it says yes. The
 * statement asks about new events and waits that are over. Other events, left by mistake or by a late commit, are found
 * by claims: every poll is a claim until the slow sweep is through, and one a second is from then on. */
#pragma once

#include "relay/queue/queue.h"

/* The queue is about to claim, without any key open. True: the side connection is to ask first. */
bool peek_first(struct queue *queue, instant_us now);
