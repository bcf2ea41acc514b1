#include "relay/rest/waking.h"

#include "ordering/result.h"
#include "relay/base/fault_point.h"
#include "relay/postgres/db.h"
#include "relay/queue/queue.h"
#include "relay/queue/report.h"
#include "relay/rest/rest.h"
#include "relay/table/table.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define NOTIFICATION_BYTES 32 /* longer than any that is meant for a relay */

enum waking_state {
    WAKING_UNWANTED,   /* no queue has wanted to rest yet */
    WAKING_OFF,        /* no connection */
    WAKING_SUBSCRIBES, /* LISTEN is under way */
    WAKING_IDLE,
    WAKING_BUSY,   /* `queue` gets its locks, or gives them back */
    WAKING_ASKS,   /* whether the server still answers: a proxy may have lost it and say nothing. db.h gives up */
    WAKING_USELESS /* behind a pooler */
};

struct waking {
    const struct config *process;
    struct queue *const *queues;
    size_t queue_count;
    struct db *db;
    enum waking_state state;
    struct queue *queue;
    struct arena *arena; /* of the round under way */
    bool failed;         /* the round under way has */
    uint64_t trouble;    /* see report_unreachable() */
    instant_us heard_at; /* the last answer came */
};

struct waking *waking_new(const struct config *process, struct queue *const *queues, size_t queue_count, uint64_t seed)
{
    struct db_options options = {
        .conninfo = process->listen_database ? process->listen_database : process->database,
        .application_name = "pgcourier",
        .prepared = PREPARED_AUTO, /* LISTEN needs a session of its own, which has our settings */
        .statement_timeout_us = process->statement_timeout_us,
        .lock_timeout_us = db_lock_timeout_us(process->statement_timeout_us),
        .read_write = true,
        .seed = seed,
    };
    struct waking *waking = memory_new(sizeof *waking);
    *waking = (struct waking){.process = process, .queues = queues, .queue_count = queue_count, .db = db_new(&options)};
    return waking;
}

static void end_round(struct waking *waking)
{
    arena_free(waking->arena);
    waking->arena = NULL;
    waking->failed = false;
}

void waking_free(struct waking *waking)
{
    if (!waking)
        return;
    end_round(waking);
    db_free(waking->db);
    free(waking);
}

/* ---- statements ---- */

static void send(struct waking *waking, enum waking_state state, const struct statement *st)
{
    struct error err;
    waking->state = state;
    if (!db_send(waking->db, st, &err) || !db_end_round(waking->db, &err))
        db_drop(waking->db, false, err.text);
    FAULT_POINT("waking.sent");
}

/* When the server is asked whether it is there: only then would a queue that rests be woken. */
static instant_us ask_at(const struct waking *waking)
{
    instant_us at = INSTANT_NEVER;
    for (size_t i = 0; waking->state == WAKING_IDLE && i < waking->queue_count; i++)
        if (waking->queues[i]->rest.lock == REST_LOCKED)
            at = instant_min(at, waking->heard_at + rest_check_us(waking->queues[i]));
    return at;
}

static void ask(struct waking *waking)
{
    struct statement st = statement_of("select");
    send(waking, WAKING_ASKS, &st);
}

static void send_lock(struct waking *waking, struct queue *queue)
{
    bool lock = queue->rest.lock == REST_LOCK_WANTED;
    struct statement st = statement_of(lock ? sql_rest_lock : sql_rest_unlock);
    waking->arena = arena_new();
    statement_add_int(&st, waking->arena, (int32_t)queue->table->oid);
    statement_add_text(&st, queue->config->name);
    waking->queue = queue;
    rest_lock_moved(queue, true);
    send(waking, WAKING_BUSY, &st);
}

static bool wants_lock(const struct queue *queue, enum rest_lock wanted)
{
    return queue->rest.lock == wanted;
}

/* Locks are given back first: producers notify until then. */
static struct queue *next_queue(const struct waking *waking)
{
    static const enum rest_lock wanted[] = {REST_UNLOCK_WANTED, REST_LOCK_WANTED};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        for (size_t q = 0; q < waking->queue_count; q++)
            if (wants_lock(waking->queues[q], wanted[i]))
                return waking->queues[q];
    return NULL;
}

void waking_prepare(struct waking *waking, struct pollset *ps)
{
    if (waking->state == WAKING_USELESS)
        return;
    if (waking->state != WAKING_UNWANTED)
        db_prepare(waking->db, ps);
    if ((waking->state == WAKING_UNWANTED || waking->state == WAKING_IDLE) && next_queue(waking))
        pollset_deadline(ps, 0); /* since its turn */
    pollset_deadline(ps, ask_at(waking));
}

/* ---- what comes back ---- */

static void come_up(struct waking *waking)
{
    if (db_is_shared(waking->db)) {
        waking->state = WAKING_USELESS;
        for (size_t i = 0; i < waking->queue_count; i++)
            report_stays_awake(waking->queues[i], "a pooler shares the connection: give a direct listen_database");
        db_drop(waking->db, false, "it is of no use behind a pooler");
        return;
    }
    struct statement st = statement_of(sql_rest_listen);
    send(waking, WAKING_SUBSCRIBES, &st);
}

static void take_result(struct waking *waking, const PGresult *res)
{
    struct error err;
    ExecStatusType status = PQresultStatus(res);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        db_result_rule(res, &err);
        waking->failed = true;
        db_drop(waking->db, false, err.text); /* the session may have a lock that nobody would give back */
        return;
    }
    if (waking->state != WAKING_BUSY || waking->queue->rest.lock != REST_LOCK_ASKED)
        return;
    int64_t number = 0;
    result_bigint(res, 0, 1, &number);
    rest_lock_answered(waking->queue, result_bool(res, 0, 0), db_backend_pid(waking->db), number);
}

static void round_ended(struct waking *waking, instant_us now)
{
    waking->heard_at = now;
    if (waking->state == WAKING_SUBSCRIBES) {
        report_connected(waking->queues[0], "waking");
        waking->trouble = 0;
    } else if (waking->state == WAKING_BUSY && waking->queue->rest.lock == REST_UNLOCK_ASKED) {
        rest_lock_moved(waking->queue, false);
    }
    waking->state = WAKING_IDLE;
    end_round(waking);
}

static void connection_lost(struct waking *waking, const struct error *err, instant_us now)
{
    if (waking->state == WAKING_USELESS)
        return;
    if (waking->state == WAKING_IDLE || waking->state == WAKING_BUSY || waking->state == WAKING_ASKS)
        report_disconnected(waking->queues[0], "waking", err);
    else
        report_unreachable(waking->queues[0], "waking", err, &waking->trouble);
    waking->state = WAKING_OFF;
    end_round(waking);
    for (size_t i = 0; i < waking->queue_count; i++)
        rest_lost(waking->queues[i], now);
}

/* ---- notifications ---- */

/* Those that are for nobody here are left alone. An empty one is for all. */
static bool is_meant(const struct queue *queue, const char *text)
{
    char table[NOTIFICATION_BYTES], name[NOTIFICATION_BYTES];
    snprintf(table, sizeof table, "t%u", queue->table->oid);
    snprintf(name, sizeof name, "q%" PRId64, queue->rest.number);
    return text[0] == '\0' || strcmp(text, table) == 0 || strcmp(text, name) == 0;
}

static void take_notifications(struct waking *waking, instant_us now)
{
    char text[NOTIFICATION_BYTES];
    while (db_notification(waking->db, text, sizeof text))
        for (size_t i = 0; i < waking->queue_count; i++)
            if (is_meant(waking->queues[i], text))
                rest_notified(waking->queues[i], text[0] == 't', now);
}

static void take_events(struct waking *waking, const struct pollset *ps, instant_us now)
{
    struct db_result result;
    struct error err;
    for (enum db_event event; (event = db_progress(waking->db, ps, now, &result, &err)) != DB_NOTHING;) {
        if (event == DB_UP)
            come_up(waking);
        else if (event == DB_ROUND_END && !waking->failed)
            round_ended(waking, now);
        else if (event == DB_RESULT)
            take_result(waking, result.res);
        else if (event == DB_DOWN)
            connection_lost(waking, &err, now);
        PQclear(result.res);
        if (event == DB_DOWN)
            return;
    }
}

void waking_ready(struct waking *waking, const struct pollset *ps, instant_us now)
{
    if (waking->state == WAKING_USELESS)
        return;
    struct queue *next = next_queue(waking);
    if (waking->state == WAKING_UNWANTED && !next)
        return;
    if (waking->state == WAKING_UNWANTED)
        waking->state = WAKING_OFF;
    take_events(waking, ps, now);
    take_notifications(waking, now);
    next = next_queue(waking);
    if (waking->state != WAKING_IDLE || !db_is_idle(waking->db))
        return;
    if (next)
        send_lock(waking, next);
    else if (now >= ask_at(waking))
        ask(waking);
}
