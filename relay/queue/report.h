/* relay/queue/report.h -- the lines that a queue at work logs. */
#pragma once

#include "relay/queue/queue.h"

void report_failure(const struct lane *lane); /* lane->failed, by lane->outcome */
void report_late(const struct queue *queue, const struct event *event);
void report_missing(const struct queue *queue, size_t missing);
void report_claimed(const struct queue *queue, size_t index, const struct claim_plan *plan, const struct batch *batch,
                    int64_t took_us);
void report_claim_waits(const struct queue *queue, size_t index, const char *reason, instant_us until, instant_us now);
void report_claim_failed(const struct queue *queue, const struct error *err);
void report_settle_failed(const struct queue *queue, const struct error *err);
void report_side_failed(const struct queue *queue, const char *task, const struct error *err);
void report_unreadable(const struct lane *lane);
void report_blocked(const struct lane *lane, const struct error *cause); /* its first event that is not settled */
void report_connected(const struct queue *queue, const char *connection);
void report_disconnected(const struct queue *queue, const char *connection, const struct error *err);
/* A connection does not come up. Once for each cause: *logged_cause is a hash of the last, until the caller sets it to
 * 0.
 */
void report_unreachable(const struct queue *queue, const char *connection, const struct error *err,
                        uint64_t *logged_cause);
void report_lost(const struct queue *queue, size_t events, size_t in_flight);
void report_leases_over(const struct queue *queue, size_t lanes);
void report_leases_held(const struct queue *queue, size_t lanes);
void report_leases_lost(const struct queue *queue, size_t lanes);
void report_ownerless(const struct queue *queue, uint64_t keys); /* leases of a relay that has ended */
void report_rests(const struct queue *queue, int64_t for_us);
void report_wakes(const struct queue *queue, const char *reason, int64_t rested_us);
void report_stays_awake(const struct queue *queue, const char *obstacle);
void report_window(const struct queue *queue);
void report_schedule_failed(const struct queue *queue, struct span cause);
void report_paused(const struct queue *queue, struct span by, struct span reason);
void report_resumed(const struct queue *queue);
void report_removed(const struct queue *queue, struct span what);
void report_purged(const struct queue *queue, uint64_t events);
void report_upkeep_failed(const struct queue *queue, const char *task, const struct error *err);
void report_stats(const struct queue *queue, double seconds);
