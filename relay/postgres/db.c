/* DESIGN. libpq, non-blocking, in pipeline mode; what goes out in a round is pipeline.c's. */
#include "relay/postgres/db.h"

#include "relay/base/fault_point.h"
#include "relay/postgres/db_hosts.h"
#include "relay/postgres/pipeline.h"
#include "sql_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CONNECT_TIMEOUT_US (10 * SECOND_US) /* progress_connect() says so */
#define ANSWER_SLACK_US (10 * SECOND_US)

enum db_state { DB_STATE_OFF, DB_STATE_LOOKING_UP, DB_STATE_CONNECTING, DB_STATE_SETUP, DB_STATE_IDLE, DB_STATE_BUSY };

struct db {
    struct db_options options;
    struct db_hosts *hosts;
    PGconn *conn; /* NULL while OFF and LOOKING_UP */
    enum db_state state;
    PostgresPollingStatusType connecting;
    bool prepare; /* statements, on this connection */
    bool dropped; /* db_drop() was called; its text is in `trouble` */
    struct pipeline pipeline;
    unsigned syncs;    /* ends of rounds that the server still owes us */
    bool row_mode_due; /* the next statement's results come row by row: tell libpq before reading them */
    unsigned failures;
    instant_us now; /* of the turn of the loop */
    instant_us retry_at, connect_deadline, answer_deadline;
    struct rng rng;
    char trouble[ERROR_TEXT_MAX]; /* the last notice or reason, which explains a broken connection */
};

static const struct backoff reconnect_backoff = {.base_us = 50 * MS_US, .max_us = 2 * SECOND_US};

struct db *db_new(const struct db_options *options)
{
    struct db *db = memory_new(sizeof *db);
    db->options = *options;
    db->hosts = db_hosts_new(options->conninfo);
    db->rng.state = options->seed;
    db->prepare = options->prepared != PREPARED_OFF;
    return db;
}

static void disconnect(struct db *db)
{
    PQfinish(db->conn);
    db->conn = NULL;
    db->state = DB_STATE_OFF;
    pipeline_reset(&db->pipeline);
    db->syncs = 0;
    db->row_mode_due = db->dropped = false;
}

void db_free(struct db *db)
{
    if (!db)
        return;
    disconnect(db);
    db_hosts_free(db->hosts);
    free(db);
}

bool db_is_shared(const struct db *db)
{
    return db->pipeline.sharing;
}

int db_backend_pid(const struct db *db)
{
    return db->state >= DB_STATE_IDLE && !db->pipeline.sharing ? PQbackendPID(db->conn) : 0;
}

bool db_is_idle(const struct db *db)
{
    return db->state == DB_STATE_IDLE && !db->dropped;
}

/* A session that ends says so before it lets go of its locks, and closes its connection long afterwards. */
static void hear_last_words(void *arg, const PGresult *res)
{
    struct db *db = arg;
    const char *words = db_result_last_words(res);
    if (words)
        snprintf(db->trouble, sizeof db->trouble, "%s", words);
}

/* Always DB_DOWN, so that callers return it. */
static enum db_event lost(struct db *db, instant_us now, struct error *err)
{
    const char *text = db->trouble[0] ? db->trouble : db->conn ? PQerrorMessage(db->conn) : "cannot connect";
    error_set(err, ERROR_UNREACHABLE, "database: %s", text[0] ? text : "connection lost");
    db_hosts_explain(db->hosts, err);
    db->failures++;
    db->retry_at = now + backoff_delay_us(&reconnect_backoff, db->failures, &db->rng);
    disconnect(db);
    db->trouble[0] = '\0';
    return DB_DOWN;
}

static enum db_event silent(struct db *db, instant_us now, const char *text, struct error *err)
{
    snprintf(db->trouble, sizeof db->trouble, "%s", text);
    if (db->state < DB_STATE_IDLE)
        db_hosts_pass_over(db->hosts);
    return lost(db, now, err);
}

static bool start(struct db *db, instant_us now)
{
    static const struct db_default defaults[] = {{"keepalives_idle", "30"},   {"keepalives_interval", "10"},
                                                 {"keepalives_count", "3"},   {"tcp_user_timeout", "15000"},
                                                 {"client_encoding", "UTF8"}, {NULL, NULL}};
    db->conn = FAULT_ERROR("db.connect") ? NULL : db_hosts_connect(db->hosts, db->options.application_name, defaults);
    if (!db->conn || PQstatus(db->conn) == CONNECTION_BAD)
        return false;
    PQsetNoticeReceiver(db->conn, hear_last_words, db);
    db->state = DB_STATE_CONNECTING;
    db->connecting = PGRES_POLLING_WRITING;
    db->connect_deadline = now + CONNECT_TIMEOUT_US;
    return true;
}

/* The server ends each statement in time: who is silent for longer stands still. A pooler may let a round wait. */
static void expect_answer(struct db *db)
{
    int64_t statements = (int64_t)(db->pipeline.expected_count - db->pipeline.expected_next) + 1;
    int64_t patience_us = statements * db->options.statement_timeout_us + ANSWER_SLACK_US;
    db->answer_deadline = db->pipeline.sharing ? INSTANT_NEVER : db->now + patience_us;
}

static bool send_sync(struct db *db, struct error *err)
{
    bool sent = PQpipelineSync(db->conn) == 1;
    if (sent) {
        db->syncs++;
        expect_answer(db);
        sent = PQflush(db->conn) >= 0;
    }
    return sent || error_set(err, ERROR_UNREACHABLE, "database: %s", PQerrorMessage(db->conn));
}

bool db_send(struct db *db, const struct statement *st, struct error *err)
{
    struct pipeline *pipeline = &db->pipeline;
    assert(db->state == DB_STATE_IDLE || (db->state == DB_STATE_BUSY && pipeline->statements > 0));
    if (FAULT_ERROR("db.send"))
        return error_set(err, ERROR_UNREACHABLE, "database: made to fail");
    bool room = statement_cache_has(&pipeline->prepared, st->sql) || !statement_cache_is_full(&pipeline->prepared);
    bool by_name = db->prepare && (!pipeline->sharing || db->options.prepared == PREPARED_ON) && room;
    if (!pipeline_send(pipeline, db->conn, st, by_name))
        return error_set(err, ERROR_UNREACHABLE, "database: %s", PQerrorMessage(db->conn));
    db->state = DB_STATE_BUSY;
    return true;
}

bool db_send_sql(struct db *db, const char *sql, struct error *err)
{
    struct statement st = statement_of(sql);
    return db_send(db, &st, err);
}

bool db_end_round(struct db *db, struct error *err)
{
    assert(db->state == DB_STATE_BUSY);
    db->row_mode_due = pipeline_due(&db->pipeline)->by_row;
    if (FAULT_ERROR("db.round"))
        return error_set(err, ERROR_UNREACHABLE, "database: made to fail");
    bool sent = send_sync(db, err);
    FAULT_POINT("db.round_sent");
    return sent;
}

void db_prepare(struct db *db, struct pollset *ps)
{
    if (db->dropped) {
        pollset_deadline(ps, 0);
        return;
    }
    switch (db->state) {
    case DB_STATE_OFF:
        pollset_deadline(ps, db->retry_at);
        break;
    case DB_STATE_LOOKING_UP:
        db_hosts_prepare(db->hosts, ps);
        break;
    case DB_STATE_CONNECTING:
        pollset_add(ps, PQsocket(db->conn), db->connecting == PGRES_POLLING_READING ? POLLIN : POLLOUT);
        pollset_deadline(ps, db->connect_deadline);
        break;
    default:
        /* Idle connections too: a backend that was terminated tells us so here. */
        pollset_add(ps, PQsocket(db->conn), (short)(PQflush(db->conn) == 1 ? POLLIN | POLLOUT : POLLIN));
        if (db->state != DB_STATE_IDLE)
            pollset_deadline(ps, db->answer_deadline);
    }
}

static bool send_setup(struct db *db, const char *sql, int count, const char *const *values, struct error *err)
{
    if (!pipeline_send_setup(&db->pipeline, db->conn, sql, count, values))
        return error_set(err, ERROR_UNREACHABLE, "database: %s", PQerrorMessage(db->conn));
    return send_sync(db, err);
}

static bool connected(struct db *db, struct error *err)
{
    if (FAULT_ERROR("db.connected"))
        return error_set(err, ERROR_UNREACHABLE, "database: made to fail");
    if (PQsetnonblocking(db->conn, 1) != 0 || PQenterPipelineMode(db->conn) != 1)
        return error_set(err, ERROR_UNREACHABLE, "database: %s", PQerrorMessage(db->conn));
    db->state = DB_STATE_SETUP;
    return send_setup(db, sql_session_hello, 0, NULL, err);
}

static bool set_up_session(struct db *db, const PGresult *res, struct error *err)
{
    if (db->options.read_write && strcmp(PQgetvalue(res, 0, 1), "true") == 0) {
        snprintf(db->trouble, sizeof db->trouble, "the server is in recovery or read-only; waiting for a primary");
        return false;
    }
    char pid[16];
    snprintf(pid, sizeof pid, "%d", PQbackendPID(db->conn));
    db->pipeline.sharing = db->options.prepared == PREPARED_OFF || strcmp(PQgetvalue(res, 0, 0), pid) != 0;
    /* A SQL_ASCII database holds bytes: asking for UTF8 would make the server refuse those that are not. */
    bool ascii = strcmp(PQgetvalue(res, 0, 2), "SQL_ASCII") == 0;
    if (db->pipeline.sharing && !ascii)
        return true;
    char timeout[32], patience[32];
    snprintf(timeout, sizeof timeout, "%" PRId64, db->options.statement_timeout_us / MS_US);
    snprintf(patience, sizeof patience, "%" PRId64, db->options.lock_timeout_us / MS_US);
    const char *values[] = {ascii ? "SQL_ASCII" : "UTF8", timeout, patience};
    return db->pipeline.sharing ? send_setup(db, sql_session_encoding, 1, values, err)
                                : send_setup(db, sql_session_settings, 3, values, err);
}

static enum db_event end_round(struct db *db, PGresult *res)
{
    PQclear(res);
    FAULT_POINT("db.round_end");
    if (--db->syncs == 0)
        pipeline_end(&db->pipeline);
    return DB_ROUND_END;
}

/* Reads what the server has sent. DB_RESULT and DB_ROUND_END come from here. */
static enum db_event next_result(struct db *db, struct db_result *ret)
{
    for (;;) {
        const struct expected end = {.index = db->pipeline.statements}; /* the round's own: its commit was refused */
        const struct expected *due = pipeline_due(&db->pipeline);
        due = due ? due : &end;
        /* libpq wants to be told between the statement before and the first row of this one. */
        if (db->row_mode_due && PQsetSingleRowMode(db->conn) == 1)
            db->row_mode_due = false;
        if (PQisBusy(db->conn))
            return DB_NOTHING;
        PGresult *res = PQgetResult(db->conn);
        if (!res) {
            if (!pipeline_pass(&db->pipeline))
                return DB_NOTHING; /* LCOV_EXCL_LINE */
            due = pipeline_due(&db->pipeline);
            db->row_mode_due = due && due->by_row;
            continue;
        }
        ExecStatusType status = PQresultStatus(res);
        if (status == PGRES_PIPELINE_SYNC)
            return end_round(db, res);
        if (due->own_text && (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK)) {
            PQclear(res);
            continue;
        }
        /* A PREPARE that failed, or that was skipped because something before it in its round failed, is due again. */
        if (due->own_text)
            statement_cache_forget(&db->pipeline.prepared, due->own_text);
        if (status == PGRES_FATAL_ERROR)
            hear_last_words(db, res);
        *ret = (struct db_result){res, due->index};
        FAULT_POINT("db.result");
        return DB_RESULT;
    }
}

static enum db_event progress_setup(struct db *db, instant_us now, struct error *err)
{
    struct db_result result = {0};
    enum db_event event;
    while ((event = next_result(db, &result)) != DB_NOTHING) {
        if (event == DB_ROUND_END && db->syncs > 0)
            continue; /* the hello's; the session's settings follow */
        if (event == DB_ROUND_END)
            break;
        bool hello = PQntuples(result.res) == 1 && PQnfields(result.res) == 4;
        if (PQresultStatus(result.res) != PGRES_TUPLES_OK) {
            db_result_rule(result.res, err);
            snprintf(db->trouble, sizeof db->trouble, "%s", err->text);
            PQclear(result.res);
            return lost(db, now, err);
        }
        bool ok = !hello || set_up_session(db, result.res, err);
        PQclear(result.res);
        if (!ok)
            return lost(db, now, err);
    }
    if (event == DB_NOTHING)
        return PQstatus(db->conn) == CONNECTION_OK ? DB_NOTHING : lost(db, now, err);
    db->state = DB_STATE_IDLE;
    return DB_UP;
}

static enum db_event progress_lookup(struct db *db, instant_us now, struct error *err)
{
    enum db_hosts_state state = db_hosts_turn(db->hosts, now, NULL);
    if (state == DB_HOSTS_PENDING)
        return DB_NOTHING;
    return state == DB_HOSTS_READY && start(db, now) ? DB_NOTHING : lost(db, now, err);
}

static enum db_event progress_connect(struct db *db, const struct pollset *ps, instant_us now, struct error *err)
{
    if (now >= db->connect_deadline)
        return silent(db, now, "no answer within 10 s", err);
    if (!ps || !pollset_revents(ps, PQsocket(db->conn)))
        return DB_NOTHING;
    db->connecting = PQconnectPoll(db->conn);
    if (db->connecting == PGRES_POLLING_FAILED)
        return lost(db, now, err);
    if (db->connecting == PGRES_POLLING_OK && !connected(db, err))
        return lost(db, now, err);
    return DB_NOTHING;
}

/* A server that ends a session says why and closes. One read takes the words and only the next one sees the end, which
 * an immediate shutdown's words, a warning, do not tell. In between the relay would deliver events whose keys it has
 * lost. What is idle is not spoken to for much else. */
static bool read_input(struct db *db)
{
    return PQconsumeInput(db->conn) == 1 && (db->state != DB_STATE_IDLE || PQconsumeInput(db->conn) == 1);
}

/* Reads and writes what can be without waiting. False when the connection is lost. */
static bool exchange(struct db *db, const struct pollset *ps)
{
    if (FAULT_ERROR("db.read"))
        return false;
    short ready = ps ? pollset_revents(ps, PQsocket(db->conn)) : POLLIN;
    if (ps && (ready & POLLIN))
        expect_answer(db);
    bool good = !(ready & (POLLIN | POLLERR | POLLHUP)) || read_input(db);
    good = good && (!(ready & POLLOUT) || PQflush(db->conn) >= 0);
    (void)PQisBusy(db->conn);       /* reads a server's last words, also where the connection is closed already */
    return good && !db->trouble[0]; /* hear_last_words() */
}

enum db_event db_progress(struct db *db, const struct pollset *ps, instant_us now, struct db_result *ret,
                          struct error *err)
{
    *ret = (struct db_result){0};
    db->now = now;
    if (db->dropped)
        return lost(db, now, err);
    if (db->state == DB_STATE_OFF && now < db->retry_at)
        return DB_NOTHING;
    if (db->state == DB_STATE_OFF) {
        db_hosts_begin(db->hosts, now);
        db->state = DB_STATE_LOOKING_UP;
    }
    if (db->state == DB_STATE_LOOKING_UP)
        return progress_lookup(db, now, err);
    if (db->state == DB_STATE_CONNECTING)
        return progress_connect(db, ps, now, err);
    /* What has been read already comes first: a system call for every row would cost more than the row; and what the
     * server said before it went away is known before the connection is lost. */
    enum db_event event = db->state == DB_STATE_BUSY ? next_result(db, ret) : DB_NOTHING;
    if (event == DB_NOTHING) {
        if (!exchange(db, ps))
            return lost(db, now, err);
        if (db->state != DB_STATE_IDLE && now >= db->answer_deadline)
            return silent(db, now, "the server has not answered in time; the connection is given up", err);
        if (db->state == DB_STATE_SETUP)
            return progress_setup(db, now, err);
        if (db->state == DB_STATE_IDLE)
            return PQstatus(db->conn) == CONNECTION_OK ? DB_NOTHING : lost(db, now, err);
        event = next_result(db, ret);
    }
    if (event == DB_ROUND_END) {
        db->state = DB_STATE_IDLE;
        db->failures = 0; /* not before: what comes up may still be of no use, over and over */
        db_hosts_settle(db->hosts);
    }
    if (event == DB_NOTHING && PQstatus(db->conn) != CONNECTION_OK)
        return lost(db, now, err);
    return event;
}

void db_drop(struct db *db, bool unprepared, const char *why)
{
    if (unprepared)
        db->prepare = false;
    if (db->state == DB_STATE_OFF)
        return;
    snprintf(db->trouble, sizeof db->trouble, "%s", why);
    db->dropped = true;
}

bool db_notification(struct db *db, char *ret_text, size_t size)
{
    PGnotify *notification = db->conn ? PQnotifies(db->conn) : NULL;
    if (!notification)
        return false;
    snprintf(ret_text, size, "%s", notification->extra);
    PQfreemem(notification);
    return true;
}
