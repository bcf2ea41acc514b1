#include "relay/claim/listen.h"

#include "relay/postgres/db.h"
#include "relay/queue/pace.h"
#include "relay/queue/report.h"

#include <stdlib.h>

struct listener {
    struct queue *queue;
    struct db *db;
    char *sql; /* listen "channel" */
    bool up;
    uint64_t trouble; /* see report_unreachable() */
};

/* A channel name is an identifier: quotes are doubled. */
static char *listen_statement(const char *channel)
{
    const struct span head = SPAN_LITERAL("listen \"");
    char *sql = memory_new(head.size + strlen(channel) * 2 + sizeof "\""), *p = mempcpy(sql, head.data, head.size);
    for (; *channel; channel++) {
        if (*channel == '"')
            *p++ = '"';
        *p++ = *channel;
    }
    *p = '"';
    return sql;
}

struct listener *listener_new(struct queue *queue)
{
    if (!queue->config->listen)
        return NULL;
    const struct config *process = queue->process;
    struct db_options options = {
        .conninfo = process->listen_database ? process->listen_database : process->database,
        .application_name = "pgcourier",
        .prepared = PREPARED_AUTO, /* LISTEN needs a session of its own, which has our settings */
        .statement_timeout_us = process->statement_timeout_us,
        .lock_timeout_us = db_lock_timeout_us(process->statement_timeout_us),
        .read_write = true,
        .seed = rng_next(&queue->rng),
    };
    struct listener *listener = memory_new(sizeof *listener);
    listener->queue = queue;
    listener->db = db_new(&options);
    listener->sql = listen_statement(queue->config->listen);
    return listener;
}

void listener_free(struct listener *listener)
{
    if (!listener)
        return;
    db_free(listener->db);
    free(listener->sql);
    free(listener);
}

void listener_prepare(struct listener *listener, struct pollset *ps)
{
    if (listener)
        db_prepare(listener->db, ps);
}

static void start_listening(struct listener *listener)
{
    struct error err;
    if (!db_send_sql(listener->db, listener->sql, &err) || !db_end_round(listener->db, &err))
        db_drop(listener->db, false, err.text);
}

static void take_result(struct listener *listener, PGresult *res)
{
    struct error err;
    if (PQresultStatus(res) != PGRES_COMMAND_OK) {
        db_result_rule(res, &err);
        db_drop(listener->db, false, err.text);
    }
    PQclear(res);
}

static void connection_lost(struct listener *listener, const struct error *err)
{
    if (listener->up)
        report_disconnected(listener->queue, "listen", err);
    else
        report_unreachable(listener->queue, "listen", err, &listener->trouble);
    listener->up = false;
}

static void listening(struct listener *listener, instant_us now)
{
    if (!listener->up)
        report_connected(listener->queue, "listen");
    listener->up = true;
    listener->trouble = 0;
    pace_wake(listener->queue, now);
}

void listener_ready(struct listener *listener, const struct pollset *ps, instant_us now)
{
    if (!listener)
        return;
    struct db_result result;
    struct error err;
    for (enum db_event event; (event = db_progress(listener->db, ps, now, &result, &err)) != DB_NOTHING;) {
        if (event == DB_UP)
            start_listening(listener);
        else if (event == DB_ROUND_END)
            listening(listener, now);
        else if (event == DB_RESULT)
            take_result(listener, result.res);
        else
            connection_lost(listener, &err);
        if (event == DB_DOWN)
            break;
    }
    if (db_notified(listener->db))
        pace_wake(listener->queue, now);
}
