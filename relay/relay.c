#include "relay/relay.h"

#include "relay/base/fault_point.h"
#include "relay/claim/claim.h"
#include "relay/deliver/deliver.h"
#include "relay/deliver/outlet.h"
#include "relay/hold/lease.h"
#include "relay/postgres/connect.h"
#include "relay/postgres/query.h"
#include "relay/queue/report.h"
#include "relay/queue_open.h"
#include "relay/relay_end.h"
#include "relay/rest/rest.h"
#include "relay/rest/waking.h"
#include "relay/route/route.h"
#include "relay/side/serving.h"
#include "relay/side/side.h"
#include "relay/side/upkeep.h"
#include "relay/table/table.h"
#include "sql_text.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define WAIT_MAX_US SECOND_US
#define OPENING_MAX_US (2 * SECOND_US)
#define SETTLE_GRACE_US SECOND_US /* after shutdown_timeout, for the rows that were acked */

struct relay {
    struct relay_options options;
    struct outlet **outlets; /* one a sink of the configuration */
    struct queue **queues;
    struct waking *waking;
    PGconn *opening; /* announces which tables are served until the queues' own connections do; NULL: they do */
    struct pollset *ps;
    struct ending ending;
    instant_us started_at, stats_at;
    instant_us stop_by; /* INSTANT_NEVER: not stopping */
    bool cut, reload;
    bool stop_signalled; /* a signal asked to stop */
    struct rng rng;
};

/* ---- opening ---- */

static bool check_table(const struct relay *relay, PGconn *conn, const struct queue *queue, struct error *err)
{
    struct findings findings = {0};
    if (!table_check(conn, queue->config, queue->table, &findings, err))
        return false;
    for (size_t i = 0; i < findings.count; i++) {
        const struct finding *finding = &findings.list[i];
        bool bad = finding->level == FINDING_ERROR;
        LOG(relay->options.log, bad ? LOG_ERROR : LOG_WARN, bad ? "table.error" : "table.warning",
            log_text("queue", queue->config->name), log_text("text", finding->text), log_text("fix", finding->remedy));
    }
    if (findings.errors == 0)
        return true;
    const struct finding *first = findings.list;
    while (first->level != FINDING_ERROR)
        first++;
    return error_set(err, findings_kind(&findings), "queue %s: %s%s%s", queue->config->name, first->text,
                     first->remedy[0] ? "  fix: " : "", first->remedy);
}

/* The configuration is checked for this by name; only the database knows which names mean the same rows. */
static bool check_shared(const struct relay *relay, PGconn *conn, const struct queue *queue, struct error *err)
{
    for (size_t i = 0; relay->queues[i] != queue; i++) {
        const struct queue *other = relay->queues[i];
        if (!table_check_shared(conn, queue->config, queue->table, other->config, other->table, err))
            return false;
    }
    return true;
}

static struct outlet *outlet_of(const struct relay *relay, const char *sink)
{
    size_t i = 0; /* config_check.c has seen that it is one of them */
    while (strcmp(relay->options.config->sinks[i].name, sink) != 0)
        i++;
    return relay->outlets[i];
}

static void link_queues(struct relay *relay)
{
    const struct config *config = relay->options.config;
    for (size_t i = 0; i < config->queue_count; i++)
        if (config->queues[i].next)
            relay->queues[i]->next = relay->queues[config->queues[i].next - config->queues];
}

/* Writes the queue into the list of served queues. A role without the privilege serves the queue all the same, because
 * only that list needs the entry: table_check() has warned. */
static void note_queue(PGconn *conn, const struct queue *queue)
{
    static const char *const types[] = {[KEY_NONE] = "none",
                                        [KEY_BIGINT] = "bigint",
                                        [KEY_INTEGER] = "bigint",
                                        [KEY_TEXT] = "text",
                                        [KEY_UUID] = "uuid"};
    const struct table *table = queue->table;
    char oid[16], lock_class[16];
    struct error err;
    snprintf(oid, sizeof oid, "%u", table->oid);
    snprintf(lock_class, sizeof lock_class, "%d", (int)table->lock_class);
    const struct column_map *columns = &queue->config->columns;
    const char *params[] = {queue->config->name,
                            oid,
                            lock_class,
                            types[table->key_type],
                            queue->config->where ? NULL : columns->id,
                            columns->key,
                            columns->created_at};
    PQclear(query_in_time(conn, "served queues", sql_queue_served, sizeof params / sizeof params[0], params, &err));
}

static bool open_parts(struct relay *relay, PGconn *conn, struct error *err)
{
    const struct config *config = relay->options.config;
    for (size_t i = 0; i < config->sink_count; i++) {
        relay->outlets[i] = outlet_open(&config->sinks[i], relay->options.log, rng_next(&relay->rng), err);
        if (!relay->outlets[i])
            return false;
    }
    for (size_t i = 0; i < config->queue_count; i++) {
        struct queue_options queue = {
            .process = config,
            .config = &config->queues[i],
            .outlet = outlet_of(relay, config->queues[i].sink),
            .log = relay->options.log,
            .seed = rng_next(&relay->rng),
        };
        relay->queues[i] = queue_open(&queue, conn, err);
        if (!relay->queues[i] || !check_shared(relay, conn, relay->queues[i], err) ||
            !check_table(relay, conn, relay->queues[i], err) ||
            !serving_begin(conn, config, queue.config, relay->queues[i]->table, err))
            return false;
        if (relay->options.notes_queues)
            note_queue(conn, relay->queues[i]);
        rest_open(relay->queues[i], relay->options.until_empty);
    }
    link_queues(relay);
    return true;
}

struct relay *relay_open(const struct relay_options *options, struct error *err)
{
    PGconn *conn = command_connect(options->config->database, "run", err);
    if (!conn)
        return NULL;
    struct relay *relay = memory_new(sizeof *relay);
    relay->options = *options;
    relay->rng.state = options->seed;
    relay->outlets = memory_array(options->config->sink_count, sizeof(void *));
    relay->queues = memory_array(options->config->queue_count, sizeof(void *));
    relay->waking = waking_new(options->config, relay->queues, options->config->queue_count, rng_next(&relay->rng));
    relay->ps = pollset_new();
    relay->stop_by = INSTANT_NEVER;
    relay->ending = (struct ending){.queues = relay->queues,
                                    .queue_count = options->config->queue_count,
                                    .until_empty = options->until_empty,
                                    .idle_max_us = options->idle_max_us};
    relay->opening = conn;
    if (!open_parts(relay, conn, err)) {
        relay_close(relay);
        return NULL;
    }
    return relay;
}

void relay_close(struct relay *relay)
{
    if (!relay)
        return;
    FAULT_POINT("relay.close");
    PQfinish(relay->opening);
    /* Sinks first: what they have in flight belongs to the queues' batches. */
    for (size_t i = 0; i < relay->options.config->sink_count; i++)
        outlet_close(relay->outlets[i]);
    waking_free(relay->waking);
    for (size_t i = 0; i < relay->options.config->queue_count; i++)
        queue_close(relay->queues[i]);
    pollset_free(relay->ps);
    free(relay->outlets);
    free(relay->queues);
    free(relay);
}

void relay_reopen_sinks(struct relay *relay)
{
    for (size_t i = 0; i < relay->options.config->sink_count; i++) {
        struct error err;
        FAULT_POINT("relay.reopen");
        if (!sink_reopen(relay->outlets[i]->sink, &err))
            LOG(relay->options.log, LOG_ERROR, "sink.reopen_failed",
                log_text("sink", relay->options.config->sinks[i].name), log_text("cause", err.text));
    }
}

/* ---- one turn ---- */

static void begin_stop(struct relay *relay, instant_us now)
{
    if (relay->stop_by != INSTANT_NEVER)
        return;
    FAULT_POINT("relay.stop");
    relay->stop_by = now + relay->options.config->shutdown_timeout_us;
    for (size_t i = 0; i < relay->options.config->queue_count; i++)
        relay->queues[i]->stopping = true;
}

static void take_signals(struct relay *relay, instant_us now)
{
    struct signalfd_siginfo info;
    while (relay->options.signal_fd >= 0 && read(relay->options.signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGHUP) {
            relay->reload = true;
            continue;
        }
        LOG(relay->options.log, LOG_INFO, "relay.stop", log_int("signal", info.ssi_signo));
        relay->cut = relay->stop_signalled;
        relay->stop_signalled = true;
        begin_stop(relay, now);
    }
}

static void claim(struct queue *queue, const struct pollset *ps, instant_us now)
{
    rest_hear(queue, now);
    claim_ready(queue, ps, now);
    side_hear(queue, ps, now);
    queue_hand_on(queue, now);
}

static void route(struct queue *queue, instant_us now)
{
    route_claimed(queue);
    upkeep_hold(queue, now);
    lease_hold(queue, now);
}

static void deliver(struct relay *relay, struct outlet *outlet, instant_us now)
{
    if (relay->stop_by != INSTANT_NEVER)
        deliver_stop_all(outlet, now);
    deliver_ready(outlet, relay->ps, now, clock_wall_us());
}

static void settle(struct queue *queue, const struct pollset *ps, instant_us now)
{
    claim_offer(queue, now);
    rest_step(queue, now);      /* the side connection asks what it wants to know */
    side_ready(queue, ps, now); /* first: a claim cannot end while it is being settled there */
    claim_settle_resolved(queue, now);
    queue_hand_on(queue, now);
}

/* Each step takes what the one before left ready, so the order of these lines is the order an event travels. */
static void move_events(struct relay *relay, instant_us now)
{
    const struct config *config = relay->options.config;
    waking_ready(relay->waking, relay->ps, now);
    for (size_t i = 0; i < config->queue_count; i++) {
        claim(relay->queues[i], relay->ps, now);
        route(relay->queues[i], now);
    }
    for (size_t i = 0; i < config->sink_count; i++)
        deliver(relay, relay->outlets[i], now);
    for (size_t i = 0; i < config->queue_count; i++)
        settle(relay->queues[i], relay->ps, now);
}

/* Not for long, as the role may not have another connection to spare. */
static void end_opening(struct relay *relay, instant_us now)
{
    bool announced = relay->opening != NULL;
    for (size_t i = 0; announced && i < relay->options.config->queue_count; i++)
        announced = relay->queues[i]->pause.known; /* the side connection announces before it looks for a pause */
    if (!announced && now < relay->started_at + OPENING_MAX_US)
        return;
    PQfinish(relay->opening);
    relay->opening = NULL;
}

/* --until-empty and --exit-when-idle. */
static void end_by_itself(struct relay *relay, instant_us now)
{
    int64_t idle_us;
    if (relay_end_empty(&relay->ending, now))
        begin_stop(relay, now);
    bool idle = relay_end_idle(&relay->ending, now, &idle_us);
    if (!idle || relay->stop_by != INSTANT_NEVER)
        return;
    LOG(relay->options.log, LOG_INFO, "relay.idle", log_int("idle_ms", idle_us / MS_US));
    begin_stop(relay, now);
}

static void log_stats(struct relay *relay, instant_us now)
{
    if (relay->started_at == 0) /* a reload has replaced this relay before its first turn */
        return;
    for (size_t i = 0; i < relay->options.config->queue_count; i++)
        report_stats(relay->queues[i], (double)(now - relay->started_at) / SECOND_US);
}

struct pollset *relay_prepare(struct relay *relay, instant_us now)
{
    const struct config *config = relay->options.config;
    struct pollset *ps = relay->ps;
    pollset_clear(ps);
    pollset_add(ps, relay->options.signal_fd, POLLIN);
    pollset_deadline(ps, now + WAIT_MAX_US);
    if (relay->stop_by != INSTANT_NEVER)
        pollset_deadline(ps, relay->stop_by + SETTLE_GRACE_US);
    pollset_deadline(ps, relay_end_check_at(&relay->ending));
    waking_prepare(relay->waking, ps);
    for (size_t i = 0; i < config->queue_count; i++) {
        struct queue *queue = relay->queues[i];
        claim_prepare(queue, ps, now);
        side_prepare(queue, ps, now);
        rest_prepare(queue, ps, now);
    }
    for (size_t i = 0; i < config->sink_count; i++)
        outlet_prepare(relay->outlets[i], ps, now);
    return ps;
}

/* The end has come: everything is settled, or there is no more time. */
static bool is_over(const struct relay *relay, instant_us now)
{
    return relay->cut || (relay->stop_by != INSTANT_NEVER &&
                          (relay_end_is_quiet(&relay->ending) || now >= relay->stop_by + SETTLE_GRACE_US));
}

void relay_turn(struct relay *relay, instant_us now)
{
    int64_t interval_us = relay->options.config->stats_interval_us;
    if (relay->started_at == 0) {
        relay->started_at = now;
        relay_end_begin(&relay->ending, now);
        relay->stats_at = now + interval_us;
    }
    take_signals(relay, now);
    move_events(relay, now);
    if (relay->opening)
        end_opening(relay, now);
    end_by_itself(relay, now);
    if (interval_us > 0 && now >= relay->stats_at) {
        log_stats(relay, now);
        relay->stats_at = now + interval_us;
    }
}

bool relay_has_ended(struct relay *relay, instant_us now, enum relay_end *ret)
{
    if (is_over(relay, now)) {
        log_stats(relay, now);
        *ret = relay_end_is_quiet(&relay->ending) && !relay->cut ? RELAY_DRAINED : RELAY_CUT;
        return true;
    }
    if (!relay->reload || relay->stop_by != INSTANT_NEVER)
        return false;
    relay->reload = false;
    *ret = RELAY_RELOAD;
    return true;
}

enum relay_end relay_run(struct relay *relay)
{
    struct error err;
    enum relay_end end;
    instant_us now = clock_now();
    while (!relay_has_ended(relay, now, &end)) {
        if (!pollset_wait(relay_prepare(relay, now), now, &err))
            LOG(relay->options.log, LOG_ERROR, "relay.poll_failed", log_text("cause", err.text));
        now = clock_now();
        FAULT_POINT("relay.turn");
        relay_turn(relay, now);
        FAULT_POINT("relay.turned");
    }
    return end;
}

enum relay_end relay_drain(struct relay *relay)
{
    begin_stop(relay, clock_now());
    return relay_run(relay);
}

const struct queue *relay_queue(const struct relay *relay, size_t index)
{
    return relay->queues[index];
}

bool relay_was_signalled(const struct relay *relay)
{
    return relay->stop_signalled;
}

bool relay_is_to_reload(const struct relay *relay)
{
    return relay->reload;
}

void relay_reload(struct relay *relay)
{
    relay->reload = true;
}
