/* relay/deliver/next_payload.h -- may what a destination has answered be the payload of the next queue's event?
 *
 * It is asked before the answer is settled, for the sake of the others that are settled with it. */
#pragma once

#include "relay/table/table.h"
#include "sinks/delivery.h"

/* Of a delivery with a verdict and a response. An ack whose answer is too long, or not what `next` has as payload,
 * becomes a failure of the event: it has arrived, and another answer may do. */
void next_payload_judge(const struct table *next, struct delivery *d);
