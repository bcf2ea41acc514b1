/* relay/deliver/verdict_rule.h -- what a failed delivery means for its key. */
#pragma once

#include "relay/base/backoff.h"
#include "relay/config/config.h"
#include "relay/queue/batch.h"

enum blame { BLAME_EVENT, BLAME_DESTINATION, BLAME_NOBODY };

/* `repeated`: this event has failed before, and its destination has taken others since. One event may
 * cause what looks like an outage, because it crashes its receiver or is refused as if the receiver were overloaded:
 * one failure proves nothing. */
enum blame verdict_blame(const struct delivery *d, bool repeated);

/* Not for VERDICT_ACKED. */
enum lane_outcome verdict_rule(enum verdict verdict, enum blame blame, bool last_attempt, enum on_exhausted policy);

/* The database does not let an event out of the table (lane->refused): the lane fails at that event. */
void verdict_rule_stuck(struct lane *lane, const struct queue_config *config, struct rng *rng);
