#include "relay/side/serving.h"

#include "relay/config/config.h"
#include "relay/postgres/db.h"
#include "relay/postgres/query.h"
#include "relay/queue/queue.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define WHO_BYTES 128
#define TRIES 4 /* each finds another relay that has ended since */

enum { ANSWER_REFUSAL, ANSWER_TABLE, ANSWER_CLASS, ANSWER_SAID };

/* This relay, in its own words: behind a pooler the server does not know where it is. */
static const char *who(char buffer[WHO_BYTES])
{
    char machine[64] = "";
    gethostname(machine, sizeof machine - 1);
    snprintf(buffer, WHO_BYTES, "the relay with process id %d at %s", (int)getpid(), machine);
    return buffer;
}

/* A relay behind a pooler says itself what it serves, and is believed for a while after its end: that passes. */
static bool refuse(const struct table *table, const struct queue_config *config, const char *other,
                   const PGresult *answer, struct error *err)
{
    const char *class = query_text(answer, 0, ANSWER_CLASS);
    return error_set(
        err, query_bool(answer, 0, ANSWER_SAID) ? ERROR_CONFLICT : ERROR_CONFIG,
        "queue %s: %s is served with lock class %s already, by %s, and with %d here: both would deliver the "
        "same events; give both the same lock_class, or stop every relay of the table before one starts "
        "with another",
        config->name, table->plain_name, class ? class : "?", other, (int)table->lock_class);
}

/* ---- at the start ---- */

struct beginning {
    PGconn *conn;
    const struct queue_config *config;
    const struct table *table;
    bool shared;
    char oid[16], class[16];
};

static PGresult *ask(const struct beginning *b, const char *sql, int count, const char *const *params,
                     struct error *err)
{
    return query_in_time(b->conn, b->config->name, sql, count, params, err);
}

/* The table of announcements behind poolers needs a right that the role may not have: then only announcements in
 * pg_locks count. */
static bool may_note(const struct beginning *b, bool *ret, struct error *err)
{
    PGresult *may = ask(b, sql_serving_may, 0, NULL, err);
    *ret = may && query_bool(may, 0, 0);
    PQclear(may);
    return may;
}

static PGresult *note(const struct beginning *b, struct error *err)
{
    char words[WHO_BYTES];
    const char *params[] = {b->config->name, b->oid, b->class, who(words), b->shared ? "true" : "false"};
    return ask(b, sql_serving_note, 5, params, err);
}

static PGresult *hold(const struct beginning *b, struct error *err)
{
    return ask(b, sql_serving_hold, 2, (const char *const[]){b->oid, b->class}, err);
}

/* In a transaction. *ret is who is in the way, with the columns of serving_hold.sql; or NULL. */
static bool look(const struct beginning *b, PGresult **ret, struct error *err)
{
    bool may;
    PGresult *turn = ask(b, sql_serving_turn, 0, NULL, err);
    PQclear(turn);
    if (!turn || !may_note(b, &may, err))
        return false;
    PGresult *(*const looks[])(const struct beginning *, struct error *) = {b->shared ? NULL : hold, may ? note : NULL};
    *ret = NULL;
    for (size_t i = 0; i < 2 && !*ret; i++) {
        if (!looks[i])
            continue;
        PGresult *seen = looks[i](b, err);
        if (!seen)
            return false;
        if (query_text(seen, 0, ANSWER_REFUSAL))
            *ret = seen;
        else
            PQclear(seen);
    }
    return true;
}

/* A relay that has just ended may still have its sessions. */
static bool goes_away(const struct beginning *b, const PGresult *other)
{
    const char *params[] = {query_text(other, 0, ANSWER_TABLE), query_text(other, 0, ANSWER_CLASS)};
    struct error ignored;
    if (!query_script_in_time(b->conn, b->config->name, "set local lock_timeout = '2s'", &ignored))
        return false;
    PGresult *has_ended = ask(b, sql_serving_wait, 2, params, &ignored);
    PQclear(has_ended);
    return has_ended;
}

/* With the names of the other's queues, where we may know them. */
static bool refuse_beside(const struct beginning *b, const PGresult *other, struct error *err)
{
    const char *params[] = {query_text(other, 0, ANSWER_TABLE), query_text(other, 0, ANSWER_CLASS)};
    char text[512];
    struct error ignored;
    bool said = query_bool(other, 0, ANSWER_SAID); /* with the name of its queue */
    PGresult *found = said ? NULL : ask(b, sql_serving_names, 2, params, &ignored);
    const char *names = found ? query_text(found, 0, 0) : NULL;
    snprintf(text, sizeof text, "%s%s%s%s", query_text(other, 0, ANSWER_REFUSAL), names ? " (queue " : "",
             names ? names : "", names ? ")" : "");
    PQclear(found);
    return refuse(b->table, b->config, text, other, err);
}

/* True with *ret_again, too: the other relay has ended. */
static bool try_to_begin(const struct beginning *b, bool last, bool *ret_again, struct error *err)
{
    PGresult *other = NULL;
    *ret_again = false;
    if (!query_script_in_time(b->conn, b->config->name, "begin isolation level read committed", err))
        return false;
    bool ok = look(b, &other, err);
    if (ok && !other)
        return query_script_in_time(b->conn, b->config->name, "commit", err);
    struct error ignored;
    *ret_again = ok && !last && goes_away(b, other);
    bool back = query_script_in_time(b->conn, b->config->name, "rollback", ok ? err : &ignored);
    if (ok && back && !*ret_again)
        ok = refuse_beside(b, other, err);
    PQclear(other);
    return ok && back;
}

/* As relay/postgres/db.c finds out. */
static bool is_shared(const struct beginning *b, const struct config *process, bool *ret, struct error *err)
{
    PGresult *hello = ask(b, sql_session_hello, 0, NULL, err);
    *ret = hello && (process->prepared == PREPARED_OFF || query_int(hello, 0, 0) != PQbackendPID(b->conn));
    PQclear(hello);
    return hello;
}

static void write_numbers(const struct table *table, char oid[16], char class[16])
{
    snprintf(oid, 16, "%u", table->keys_oid);
    snprintf(class, 16, "%" PRId32, table->lock_class);
}

bool serving_begin(PGconn *conn, const struct config *process, const struct queue_config *config,
                   const struct table *table, struct error *err)
{
    if (!serving_matters(table))
        return true;
    struct beginning b = {.conn = conn, .config = config, .table = table};
    write_numbers(table, b.oid, b.class);
    if (!is_shared(&b, process, &b.shared, err))
        return false;
    bool ok = false, again = true;
    for (int i = 1; again; i++) {
        ok = try_to_begin(&b, i == TRIES, &again, err);
        again = ok && again;
    }
    return ok;
}

/* ---- at work ---- */

void serving_statement(const struct queue *queue, bool shared, struct arena *arena, struct statement *ret)
{
    char oid[16], class[16], words[WHO_BYTES];
    write_numbers(queue->table, oid, class);
    *ret = statement_of(shared ? sql_serving_note : sql_serving_hold);
    if (shared)
        statement_add_text(ret, queue->config->name);
    statement_add_text(ret, arena_printf(arena, "%s", oid));
    statement_add_text(ret, arena_printf(arena, "%s", class));
    if (!shared)
        return;
    statement_add_text(ret, arena_printf(arena, "%s", who(words)));
    statement_add_text(ret, "true");
}

bool serving_take(const struct queue *queue, const PGresult *res, struct error *err)
{
    const char *other = query_text(res, 0, ANSWER_REFUSAL);
    return !other || refuse(queue->table, queue->config, other, res, err);
}
