/* relay/commands/dead.h -- taking up again what the relays gave up: dead letters, and keys that are closed.
 *
 * What is done is done under the delivery locks of the keys, so it never meets a delivery of one. What cannot be done
 * is told and stays as it is, and the rest goes on; what is done before an error stays done. A key that is being
 * delivered is left for the end, when it is waited for: for DEAD_PATIENCE_US in all, however many there are. */
#pragma once

#include "relay/base/error.h"
#include "relay/commands/dead_request.h"
#include "relay/config/config.h"

#include <libpq-fe.h>

/* One queue's; adds to *counts. `filter->queue` is not looked at. That keys are busy, or something was refused, is no
 * failure. */
bool dead_act(PGconn *conn, const struct queue_config *queue, enum dead_action action, const struct dead_filter *filter,
              struct dead_counts *counts, struct error *err) MUST_CHECK;
