/* relay/postgres/db.h once more, over the simulated server instead of libpq. */
#include "tests/simulation/connection.h"
#include "tests/simulation/failure.h"

#include "relay/postgres/db.h"

#include "sql_text.h"
#include "tests/simulation/result.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>

#define TOKEN_BYTES 36

enum state { STATE_OFF, STATE_CONNECTING, STATE_IDLE, STATE_BUSY };

struct message {
    enum message_kind kind;
    instant_us at;
    PGresult *res;
    size_t index;
    struct message *next;
};

struct db {
    enum state state;
    int process, backend; /* -1: none */
    int pid;
    bool dropped;
    bool notified[2]; /* of the table, and of the queue */
    size_t statements;
    unsigned failures;
    instant_us retry_at, up_at;
    bool refused;
    struct rng rng;
    struct message *inbox, **inbox_end;
};

static const struct backoff reconnect_backoff = {.base_us = 50 * MS_US, .max_us = 2 * SECOND_US};

void connection_receive(struct db *db, enum message_kind kind, instant_us at, PGresult *res, size_t index)
{
    struct message *message = arena_alloc(sim.arena, sizeof *message);
    *message = (struct message){kind, at, res, index, NULL};
    *db->inbox_end = message;
    db->inbox_end = &message->next;
    sim_wake(db->process, at);
}

void connection_detach(struct db *db)
{
    db->backend = -1;
}

struct db *db_new(const struct db_options *options)
{
    struct db *db = memory_new(sizeof *db);
    db->rng.state = options->seed;
    db->process = sim.current;
    db->backend = -1;
    db->inbox_end = &db->inbox;
    return db;
}

static void disconnect(struct db *db)
{
    if (db->backend >= 0)
        server_hang_up(db->backend);
    db->backend = -1;
    for (; db->inbox; db->inbox = db->inbox->next)
        PQclear(db->inbox->res);
    db->inbox_end = &db->inbox;
    db->state = STATE_OFF;
    db->statements = 0;
    db->dropped = db->notified[0] = db->notified[1] = false;
}

void db_free(struct db *db)
{
    if (!db)
        return;
    disconnect(db);
    free(db);
}

bool db_is_shared(const struct db *db)
{
    (void)db;
    return sim.plan.pooled;
}

int db_backend_pid(const struct db *db)
{
    return db->state >= STATE_IDLE && !sim.plan.pooled ? db->pid : 0;
}

bool db_is_idle(const struct db *db)
{
    return db->state == STATE_IDLE && !db->dropped;
}

/* ---- sending ---- */

static enum query query_of(const char *sql)
{
    static const struct {
        const char *sql;
        enum query query;
    } plain[] = {{sql_claim_begin, QUERY_BEGIN},
                 {sql_claim_rest, QUERY_NOTHING},
                 {sql_session_transaction, QUERY_NOTHING},
                 {sql_archive_prepare, QUERY_NOTHING},
                 {sql_settle_savepoint, QUERY_SAVEPOINT},
                 {sql_settle_undo, QUERY_UNDO},
                 {sql_settle_constraints, QUERY_NOTHING},
                 {sql_settle_release, QUERY_RELEASE},
                 {sql_paused_look, QUERY_PAUSED},
                 {sql_archive_expire, QUERY_UPKEEP},
                 {sql_rest_listen, QUERY_LISTEN},
                 {sql_rest_lock, QUERY_WAKE_LOCK},
                 {sql_rest_unlock, QUERY_WAKE_UNLOCK},
                 {sql_rest_timeout, QUERY_NOTHING},
                 {sql_rest_writers, QUERY_WRITERS},
                 {sql_settle_timeouts, QUERY_NOTHING},
                 {sql_lease_end_ownerless, QUERY_OWNERLESS}};
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++)
        if (sql == plain[i].sql)
            return plain[i].query;
    if (sql[0] == '#')
        return (enum query)atoi(sql + 1); /* see start.c */
    if (strcmp(sql, "commit") == 0)
        return QUERY_COMMIT;
    assert(strcmp(sql, "rollback") == 0 && "every statement of the relay is known");
    return QUERY_ROLLBACK;
}

static uint32_t get32(const char **p)
{
    uint32_t big;
    memcpy(&big, *p, sizeof big);
    *p += sizeof big;
    return be32toh(big);
}

/* Of a key; of a token, some number that no other has. */
static int64_t number_of(struct span text)
{
    return text.size == TOKEN_BYTES ? (int64_t)(span_hash(text) | 1) : key_parse(text.data, text.size);
}

/* An array as array_recv() reads it; see relay/base/statement.c. Numbers, names of keys, or tokens; other texts come
 * out as anything. */
static struct list read_array(const char *p)
{
    struct list list = {0};
    if (get32(&p) == 0)
        return list;
    get32(&p);
    bool texts = get32(&p) == 25;
    list.count = get32(&p);
    get32(&p);
    list.values = arena_array(sim.arena, list.count, sizeof *list.values);
    list.texts = arena_array(sim.arena, texts ? list.count : 0, sizeof *list.texts);
    for (size_t i = 0; i < list.count; i++) {
        uint32_t size = get32(&p);
        uint64_t big = 0;
        if (size == UINT32_MAX) {
            list.values[i] = KEY_NONE_SIM;
            continue;
        }
        if (texts) {
            list.texts[i] = arena_copy(sim.arena, (struct span){p, size});
            list.values[i] = number_of(list.texts[i]);
        } else {
            memcpy(&big, p, size);
            list.values[i] = (int64_t)be64toh(big);
        }
        p += size;
    }
    return list;
}

static void send_call(struct db *db, enum query query, const struct statement *st)
{
    struct call *call = arena_alloc(sim.arena, sizeof *call);
    call->query = query;
    call->index = db->statements;
    for (int i = 0; st && i < st->count; i++)
        if (st->formats[i] == 1)
            call->lists[i] = read_array(st->values[i]);
        else
            call->n[i] = st->values[i] ? strtoll(st->values[i], NULL, 10) : 0;
    if (db->backend >= 0)
        server_send(db->backend, call);
}

/* The connection has broken since it was read last, and the write shows it. */
static bool turns_out_broken(const struct db *db)
{
    return db->backend < 0 && sim_chance(500);
}

bool db_send(struct db *db, const struct statement *st, struct error *err)
{
    assert(db->state == STATE_IDLE || (db->state == STATE_BUSY && db->statements > 0));
    if (turns_out_broken(db))
        return error_set(err, ERROR_UNREACHABLE, "database: broken pipe");
    send_call(db, query_of(st->sql), st);
    db->statements++;
    db->state = STATE_BUSY;
    return true;
}

bool db_send_sql(struct db *db, const char *sql, struct error *err)
{
    struct statement st = statement_of(sql);
    return db_send(db, &st, err);
}

bool db_end_round(struct db *db, struct error *err)
{
    assert(db->state == STATE_BUSY);
    if (turns_out_broken(db))
        return error_set(err, ERROR_UNREACHABLE, "database: broken pipe");
    send_call(db, QUERY_SYNC, NULL);
    return true;
}

/* ---- receiving ---- */

static enum db_event lost(struct db *db, instant_us now, struct error *err)
{
    error_set(err, ERROR_UNREACHABLE, "database: connection lost");
    TRACE("relay %d: connection lost", db->process);
    db->failures++;
    sim.totals.faults++;
    db->retry_at = now + backoff_delay_us(&reconnect_backoff, db->failures, &db->rng);
    disconnect(db);
    return DB_DOWN;
}

void db_prepare(struct db *db, struct pollset *ps)
{
    if (db->dropped)
        pollset_deadline(ps, 0);
    else if (db->state == STATE_OFF)
        pollset_deadline(ps, db->retry_at);
    else if (db->state == STATE_CONNECTING)
        pollset_deadline(ps, db->up_at);
    else if (db->inbox)
        pollset_deadline(ps, db->inbox->at);
}

static void start(struct db *db, instant_us now)
{
    db->state = STATE_CONNECTING;
    db->up_at = now + sim_draw(200, 3 * MS_US);
    db->refused = sim_fails(sim.plan.rates.connect_fails);
}

static enum db_event connect_on(struct db *db, instant_us now, struct error *err)
{
    if (now < db->up_at)
        return DB_NOTHING;
    db->backend = db->refused ? -1 : server_connect(db, db->process);
    if (db->backend < 0)
        return lost(db, now, err);
    db->pid = server_backend(db->backend)->pid;
    db->state = STATE_IDLE;
    db->failures = 0;
    return DB_UP;
}

static enum db_event read_message(struct db *db, instant_us now, struct db_result *ret, struct error *err)
{
    struct message *message = db->inbox;
    db->inbox = message->next;
    if (!db->inbox)
        db->inbox_end = &db->inbox;
    switch (message->kind) {
    case MESSAGE_EOF:
        return lost(db, now, err);
    case MESSAGE_RESULT:
        *ret = (struct db_result){message->res, message->index};
        return DB_RESULT;
    case MESSAGE_ROUND_END:
        db->state = STATE_IDLE;
        db->statements = 0;
        return DB_ROUND_END;
    case MESSAGE_NOTIFY:
        db->notified[message->index] = true;
        break;
    }
    return DB_NOTHING;
}

enum db_event db_progress(struct db *db, const struct pollset *ps, instant_us now, struct db_result *ret,
                          struct error *err)
{
    (void)ps;
    *ret = (struct db_result){0};
    if (db->dropped)
        return lost(db, now, err);
    if (db->state == STATE_OFF && now >= db->retry_at)
        start(db, now);
    if (db->state == STATE_OFF)
        return DB_NOTHING;
    if (db->state == STATE_CONNECTING)
        return connect_on(db, now, err);
    enum db_event event = DB_NOTHING;
    while (event == DB_NOTHING && db->inbox && db->inbox->at <= now)
        event = read_message(db, now, ret, err);
    return event;
}

void db_drop(struct db *db, bool unprepared, const char *why)
{
    (void)unprepared;
    (void)why;
    if (db->state != STATE_OFF)
        db->dropped = true;
}

bool db_notification(struct db *db, char *ret_text, size_t size)
{
    static const char *const texts[] = {"t0", "q7"}; /* as start.c and query_rest.c have it */
    size_t i = db->notified[0] ? 0 : 1;
    if (!db->notified[i])
        return false;
    db->notified[i] = false;
    snprintf(ret_text, size, "%s", texts[i]);
    return true;
}

const char *db_result_last_words(const PGresult *res)
{
    return failure_ends_session(result_sqlstate(res)) ? "the session ends" : NULL;
}

const struct sqlstate_rule *db_result_rule(const PGresult *res, struct error *err)
{
    const char *state = result_sqlstate(res);
    const struct sqlstate_rule *rule = sqlstate_rule(state);
    error_set(err, rule->kind, "SQLSTATE %s", state ? state : "none");
    return rule;
}
