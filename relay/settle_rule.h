/* relay/settle_rule.h -- what a failed delivery means for its key. */
#ifndef RELAY_SETTLE_RULE_H
#define RELAY_SETTLE_RULE_H

#include "relay/batch.h"
#include "relay/config.h"

enum blame { BLAME_EVENT, BLAME_DESTINATION };

/* `serving`: the destination has acked something since this delivery was submitted. */
enum blame settle_blame(const struct delivery *d, bool serving);

/* Not for VERDICT_ACKED. */
enum lane_outcome settle_rule(enum verdict verdict, enum blame blame, bool last_attempt, enum on_exhausted policy);

#endif
