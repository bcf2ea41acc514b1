/* relay/deliver.h -- lanes to their sink, and verdicts back to their lanes.
 *
 *   outlet_open -> (ready_add* -> outlet_prepare -> poll(2) -> deliver_ready)* -> outlet_close
 *
 * A lane's events go one at a time, the next after the ack of the one before, unless the sink takes runs of them or
 * keeps the order of a key itself; many lanes go in parallel. A failure stops its lane. A destination that is down
 * stops every lane to it.
 */
#ifndef RELAY_DELIVER_H
#define RELAY_DELIVER_H

#include "relay/queue.h"

struct outlet *outlet_open(const struct sink_config *config, const struct log *log, uint64_t seed,
                           struct error *err) MUST_CHECK;
void outlet_close(struct outlet *outlet); /* every lane must be finished or lost */
void outlet_prepare(struct outlet *outlet, struct pollset *ps, instant_us now);

/* One turn: takes verdicts, submits what may go. `wall_us` is the wall clock, for the lag. */
void deliver_ready(struct outlet *outlet, const struct pollset *ps, instant_us now, int64_t wall_us);

/* Sends nothing more of this lane; what is in flight still gets its verdict. */
void deliver_stop(struct lane *lane, int64_t release_us, instant_us now);

/* The lane's lock is gone: what is in flight is stopped where its sink can do that, and still gets its verdict. */
void deliver_cancel(const struct lane *lane);

/* The relay is stopping: gives back what waits; from now on a lane ends with what it has in flight. Call it for every
 * turn, as claims that were under way may still arrive. */
void deliver_stop_all(struct outlet *outlet, instant_us now);

/* How many lanes it may have at once, where they are not to wait for others to end. */
size_t outlet_places(const struct outlet *outlet);

/* Its sink could take more than there is for it. */
bool outlet_has_room(const struct outlet *outlet);

/* How many events its sink has in flight at most, as things are. */
int64_t outlet_most_in_flight(const struct outlet *outlet);

/* How many events it could take beyond those that wait for it. */
int64_t outlet_room(const struct outlet *outlet);

/* How many keys a claim may take for this outlet now: 0 = none, 1 = for a trial, or any number. */
int64_t outlet_keys_wanted(struct outlet *outlet, const struct route *route, instant_us now);

/* When outlet_keys_wanted() may change by itself. */
instant_us outlet_wake_at(const struct outlet *outlet);

#endif
