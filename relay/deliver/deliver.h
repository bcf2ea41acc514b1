/* relay/deliver/deliver.h -- lanes to their sink, and verdicts back to their lanes.
 *
 *   (ready_add* -> outlet_prepare -> poll(2) -> deliver_ready)*
 *
 * A lane's events go one at a time, the next after the ack of the one before, unless the sink takes runs of them or
 * keeps the order of a key itself; many lanes go in parallel. A failure stops its lane. A destination that is down
 * stops every lane to it.
 */
#pragma once

#include "relay/base/pollset.h"
#include "relay/deliver/outlet.h"
#include "relay/queue/queue.h"

/* One turn: takes verdicts, submits events that may be sent. `wall_us` is the wall clock, for the lag. */
void deliver_ready(struct outlet *outlet, const struct pollset *ps, instant_us now, int64_t wall_us);

/* Sends nothing more of this lane; events in flight still get their verdicts. */
void deliver_stop(struct lane *lane, int64_t release_us, instant_us now);

/* The lane's lock is lost: its sink stops events in flight if it can, and they still get their verdicts. */
void deliver_cancel(const struct lane *lane);

/* The relay is stopping: gives back events that wait; a lane ends with those that are in flight now. Call it for every
 * turn, as claims that were under way may still arrive. */
void deliver_stop_all(struct outlet *outlet, instant_us now);
