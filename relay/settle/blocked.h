/* relay/settle/blocked.h -- delivered events that cannot be settled yet, because another session holds their row, or
 * one that their row refers to.
 *
 *   refusal_answer -> blocked_wait -> ... -> blocked_wake -> settle_collect
 *
 * The row is not at fault, and the event is not delivered again: its lane becomes LANE_BLOCKED, its key stays locked or
 * leased (an orphan's is only remembered), and its settlement is tried again after a wait that grows. Meanwhile neither
 * the other lanes of its claim nor new claims wait for it. */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/postgres/db.h"
#include "relay/queue/batch.h"
#include "relay/queue/queue_parts.h"

struct queue;
struct settle_job;

/* Another session holds a row of a settlement. */
void blocked_met(struct queue *queue, instant_us now);

/* That is the lane's one row: the lane waits and, if no row of its batch passes, the batch's other lanes, too. */
void blocked_wait(struct queue *queue, struct lane *lane, const struct error *cause, instant_us now);

/* When the first wait is over; INSTANT_NEVER: there is none. */
instant_us blocked_wake_at(const struct queue *queue);

/* The waits that are over end: these lanes wait to be settled. */
void blocked_wake(struct queue *queue, instant_us now);

/* How long a settlement on this connection is to wait for a lock, as lock_timeout has it; NULL: as long as its session
 * says. */
const char *blocked_lock_timeout(const struct queue *queue, const struct db *db, instant_us now);

/* So many orphaned lanes are as many as the relay may remember beside its claims. */
bool blocked_is_full(const struct queue *queue, size_t lanes);
