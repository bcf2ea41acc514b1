/* relay/deliver/suspect.h -- events that fail as if their destination were away.
 *
 * An event that crashes its receiver, or is refused as if the receiver were overloaded, looks like an outage. Once
 * proves nothing; what proves it is that the destination takes others while this one fails again.
 *
 * Only an event that was sent later counts as one that the destination takes: when it goes away, what it had accepted
 * before may still be acked for long. */
#pragma once

#include "relay/queue/queue.h"

#define SUSPECT_MAX 1024 /* remembered; beyond that the destination is blamed */

/* Notes that `item` has failed in a way that may be the destination's fault. True when it has done so before, and the
 * destination has taken others that were sent since: while this one was on its way, or else often enough that it cannot
 * have been a destination that comes and goes. `taken_sent_at`: when the newest event that was acked had been sent. */
bool suspect_fails_again(struct keyset *suspects, const struct item *item, instant_us taken_sent_at, instant_us now);
