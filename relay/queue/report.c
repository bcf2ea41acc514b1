#include "relay/queue/report.h"

static void report_stuck(const struct lane *lane)
{
    const struct queue *queue = lane_queue(lane);
    const struct event *event = &lane->failed->event;
    LOG(queue->log, LOG_WARN, "event.stuck", log_text("queue", queue->config->name),
        log_text("table", queue->config->table), log_int("event", event->id), log_span("key", event->key),
        log_int("attempt", event->attempt),
        lane->outcome == LANE_CLOSED ? log_text("wait", "closed") : log_int("wait_ms", lane->delay_us / MS_US),
        log_text("cause", lane->failed->delivery.cause->text));
}

void report_failure(const struct lane *lane)
{
    static const char *const facts[] = {
        [LANE_RETRY] = "delivery.retry", [LANE_CLOSED] = "key.closed", [LANE_DEAD] = "delivery.dead"};
    const struct queue *queue = lane_queue(lane);
    const struct event *event = &lane->failed->event;
    if (lane->refused) {
        report_stuck(lane);
        return;
    }
    LOG(queue->log, lane->outcome == LANE_RETRY ? LOG_INFO : LOG_WARN, facts[lane->outcome],
        log_text("queue", queue->config->name), log_int("event", event->id), log_span("key", event->key),
        log_int("attempt", event->attempt), log_int("wait_ms", lane->delay_us / MS_US),
        log_text("cause", lane->failed->delivery.cause->text));
}

void report_unreadable(const struct lane *lane)
{
    const struct queue *queue = lane_queue(lane);
    LOG(queue->log, LOG_WARN, "event.unreadable", log_text("queue", queue->config->name),
        log_text("table", queue->config->table), log_int("event", lane->waited_id), log_span("key", lane->key),
        log_int("attempt", lane->failures),
        lane->delay_us < 0 ? log_text("wait", "closed") : log_int("wait_ms", lane->delay_us / MS_US),
        log_text("cause", lane->unreadable->text));
}

void report_blocked(const struct lane *lane, const struct error *cause)
{
    const struct queue *queue = lane_queue(lane);
    const struct item *item = lane->acked > 0 ? lane->first : lane->failed;
    LOG(queue->log, LOG_WARN, "settle.blocked", log_text("queue", queue->config->name),
        log_int("event", item ? item->event.id : lane->waited_id), log_span("key", item ? item->event.key : lane->key),
        log_text("cause", cause->text));
}

void report_late(const struct queue *queue, const struct event *event)
{
    LOG(queue->log, LOG_WARN, "event.late", log_text("queue", queue->config->name), log_int("event", event->id),
        log_span("key", event->key),
        log_text("cause", "a later event of this key was committed and delivered before: producers of one key "
                          "must take turns, see docs/producers.md"));
}

void report_missing(const struct queue *queue, size_t missing)
{
    LOG(queue->log, LOG_WARN, "settle.missing", log_text("queue", queue->config->name),
        log_int("events", (int64_t)missing),
        log_text("cause", "rows were gone from the table while this relay held their keys"));
}

void report_claimed(const struct queue *queue, size_t index, const struct claim_plan *plan, const struct batch *batch,
                    int64_t took_us)
{
    LOG(queue->log, LOG_DEBUG, "claim.done", log_text("queue", queue->config->name), log_int("claim", (int64_t)index),
        log_int("keys", (int64_t)batch->lane_count), log_int("events", (int64_t)batch->event_count),
        log_int("locked", plan->locked), log_int("missed", (int64_t)plan->missed.count),
        log_int("fresh_above", plan->scan.fresh_above), log_int("newest_lo", plan->scan.newest.lo),
        log_int("newest_hi", plan->scan.newest.hi), log_int("oldest_lo", plan->scan.oldest.lo),
        log_int("oldest_hi", plan->scan.oldest.hi), log_int("took_us", took_us));
}

void report_claim_waits(const struct queue *queue, size_t index, const char *reason, instant_us until, instant_us now)
{
    LOG(queue->log, LOG_DEBUG, "claim.waits", log_text("queue", queue->config->name), log_int("claim", (int64_t)index),
        log_text("for", reason), log_int("wait_us", until == INSTANT_NEVER ? -1 : until - now));
}

static void report_statement_failed(const struct queue *queue, const char *fact, const struct error *err)
{
    LOG(queue->log, LOG_WARN, fact, log_text("queue", queue->config->name), log_text("table", queue->config->table),
        log_text("kind", error_kind_name(err->kind)), log_text("cause", err->text));
}

void report_claim_failed(const struct queue *queue, const struct error *err)
{
    report_statement_failed(queue, "claim.failed", err);
}

void report_settle_failed(const struct queue *queue, const struct error *err)
{
    report_statement_failed(queue, "settle.failed", err);
}

void report_side_failed(const struct queue *queue, const char *task, const struct error *err)
{
    LOG(queue->log, LOG_WARN, "side.failed", log_text("queue", queue->config->name),
        log_text("table", queue->config->table), log_text("task", task), log_text("kind", error_kind_name(err->kind)),
        log_text("cause", err->text));
}

void report_connected(const struct queue *queue, const char *connection)
{
    LOG(queue->log, LOG_DEBUG, "database.up", log_text("queue", queue->config->name),
        log_text("connection", connection));
}

void report_disconnected(const struct queue *queue, const char *connection, const struct error *err)
{
    LOG(queue->log, LOG_WARN, "database.down", log_text("queue", queue->config->name),
        log_text("connection", connection), log_text("cause", err->text));
}

void report_unreachable(const struct queue *queue, const char *connection, const struct error *err,
                        uint64_t *logged_cause)
{
    uint64_t cause = span_hash(span_of(err->text));
    if (cause == *logged_cause)
        return;
    *logged_cause = cause;
    LOG(queue->log, LOG_WARN, "database.unreachable", log_text("queue", queue->config->name),
        log_text("connection", connection), log_text("cause", err->text));
}

void report_lost(const struct queue *queue, size_t events, size_t in_flight)
{
    LOG(queue->log, LOG_WARN, "claim.lost", log_text("queue", queue->config->name), log_int("events", (int64_t)events),
        log_int("in_flight", (int64_t)in_flight));
}

void report_leases_over(const struct queue *queue, size_t lanes)
{
    LOG(queue->log, LOG_WARN, "lease.over", log_text("queue", queue->config->name), log_int("keys", (int64_t)lanes));
}

void report_leases_held(const struct queue *queue, size_t lanes)
{
    LOG(queue->log, LOG_WARN, "lease.held", log_text("queue", queue->config->name), log_int("keys", (int64_t)lanes));
}

void report_leases_lost(const struct queue *queue, size_t lanes)
{
    LOG(queue->log, LOG_WARN, "lease.lost", log_text("queue", queue->config->name), log_int("keys", (int64_t)lanes));
}

void report_ownerless(const struct queue *queue, uint64_t keys)
{
    LOG(queue->log, LOG_INFO, "lease.ownerless", log_text("queue", queue->config->name),
        log_int("keys", (int64_t)keys));
}

void report_window(const struct queue *queue)
{
    LOG(queue->log, LOG_INFO, queue->window.closed ? "queue.closed" : "queue.opened",
        log_text("queue", queue->config->name), log_text("window", queue->config->window),
        log_text("zone", queue->config->window_zone));
}

void report_rests(const struct queue *queue, int64_t for_us)
{
    LOG(queue->log, LOG_DEBUG, "queue.rest", log_text("queue", queue->config->name),
        log_int("until_ms", for_us / MS_US));
}

void report_wakes(const struct queue *queue, const char *reason, int64_t rested_us)
{
    LOG(queue->log, LOG_DEBUG, "queue.wake", log_text("queue", queue->config->name), log_text("reason", reason),
        log_int("rested_ms", rested_us / MS_US));
}

void report_stays_awake(const struct queue *queue, const char *obstacle)
{
    LOG(queue->log, LOG_DEBUG, "queue.stays_awake", log_text("queue", queue->config->name),
        log_text("cause", obstacle));
}

void report_schedule_failed(const struct queue *queue, struct span cause)
{
    LOG(queue->log, LOG_WARN, "schedule.failed", log_text("queue", queue->config->name), log_span("cause", cause));
}

void report_paused(const struct queue *queue, struct span by, struct span reason)
{
    LOG(queue->log, LOG_INFO, "queue.paused", log_text("queue", queue->config->name), log_span("by", by),
        log_span("reason", reason));
}

void report_resumed(const struct queue *queue)
{
    LOG(queue->log, LOG_INFO, "queue.resumed", log_text("queue", queue->config->name));
}

void report_removed(const struct queue *queue, struct span what)
{
    LOG(queue->log, LOG_INFO, "archive.removed", log_text("queue", queue->config->name), log_span("what", what));
}

void report_purged(const struct queue *queue, uint64_t events)
{
    LOG(queue->log, LOG_INFO, "dead.purged", log_text("queue", queue->config->name),
        log_int("events", (int64_t)events));
}

void report_upkeep_failed(const struct queue *queue, const char *task, const struct error *err)
{
    LOG(queue->log, LOG_WARN, "upkeep.failed", log_text("queue", queue->config->name), log_text("task", task),
        log_text("kind", error_kind_name(err->kind)), log_text("cause", err->text));
}

void report_stats(const struct queue *queue, double seconds)
{
    const struct metrics *m = &queue->metrics;
    LOG(queue->log, LOG_INFO, "queue.stats", log_text("queue", queue->config->name),
        log_int("delivered", (int64_t)m->delivered), log_real("per_second", (double)m->delivered / seconds),
        log_int("retried", (int64_t)m->retried), log_int("dead", (int64_t)m->buried),
        log_int("closed", (int64_t)m->parked), log_int("delayed", (int64_t)m->delayed),
        log_int("released", (int64_t)m->released), log_int("leases_lost", (int64_t)m->leases_lost),
        log_int("purged", (int64_t)m->purged), log_int("removed", (int64_t)m->removed),
        log_int("missing", (int64_t)m->missing), log_int("late", (int64_t)m->late),
        log_int("paused", queue->pause.on && !queue->pause.refused), log_int("window_closed", queue->window.closed),
        log_int("scheduled", (int64_t)m->scheduled), log_int("claims", (int64_t)m->claims),
        log_int("empty_claims", (int64_t)m->empty_claims),
        log_real("lag_p50_ms", (double)histogram_quantile(&m->lag_us, 0.5) / 1000),
        log_real("lag_p99_ms", (double)histogram_quantile(&m->lag_us, 0.99) / 1000),
        log_real("lag_p999_ms", (double)histogram_quantile(&m->lag_us, 0.999) / 1000),
        log_real("lag_max_ms", (double)m->lag_us.max / 1000));
}
