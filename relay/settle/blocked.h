/* relay/settle/blocked.h -- what was delivered and cannot be settled yet because somebody else holds its row, or what
 * its row needs.
 *
 *   refusal_answer -> blocked_wait -> ... -> blocked_wake -> settle_collect
 *
 * That is no fault of the row, and the event is not delivered again: its lane is set aside (LANE_BLOCKED), its key
 * stays locked, leased or, where its lock is lost, in mind; and its settlement is tried again after a wait that grows.
 * Meanwhile it keeps nothing else: neither what was claimed with it, nor new claims. */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/postgres/db.h"
#include "relay/queue/batch.h"
#include "relay/queue/queue_parts.h"

struct queue;
struct settle_job;

/* Somebody holds something of a settlement. */
void blocked_met(struct queue *queue, instant_us now);

/* That is the lane's one thing: it is set aside and, where nothing of its batch passes, what is left of that. */
void blocked_wait(struct queue *queue, struct lane *lane, const struct error *cause, instant_us now);

/* When the first wait is over; INSTANT_NEVER: there is none. */
instant_us blocked_wake_at(const struct queue *queue);

/* The waits that are over end: these lanes wait to be settled. */
void blocked_wake(struct queue *queue, instant_us now);

/* How long a settlement on this connection is to wait for a lock, as lock_timeout has it; NULL: as long as its session
 * says. */
const char *blocked_patience(const struct queue *queue, const struct db *db, instant_us now);

/* So many lanes whose locks are lost are as many as may be kept in mind beside what is claimed. */
bool blocked_is_full(const struct queue *queue, size_t lanes);
