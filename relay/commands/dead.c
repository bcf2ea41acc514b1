#include "relay/commands/dead.h"

#include "relay/base/arena.h"
#include "relay/base/statement.h"
#include "relay/base/utf8.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "relay/table/table.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 80 /* of a busy key */

/* The statements of one action, for keys or for events without one. */
struct dead_statements {
    char *lock, *letters, *closed;
};

struct dead_work {
    PGconn *conn;
    const struct queue_config *queue;
    const struct table *table;
    const struct dead_filter *filter;
    PGresult *columns;              /* sql/commands/dead_columns.sql */
    struct dead_statements with[2]; /* [0] of a key, [1] of an event without a key */
    int64_t wait_ms;                /* for the key at hand */
    bool busy;                      /* it is: somebody else has a lock that it takes */
};

/* The parameter `text` as a value of the key column's type; free() it. */
static char *key_value(const struct table *table, const char *text, struct error *err)
{
    return sql_render(table_key_of_text(table), (const struct sql_variable[]){{"text", text}, {NULL, NULL}}, err);
}

static char *render_lock(const struct table *table, bool keyless, struct error *err)
{
    char *key = key_value(table, "$1::text", err);
    const struct sql_variable values[] = {{"key", key}, {"id", "$1::text::bigint"}, {NULL, NULL}};
    char *hash = key ? sql_render(keyless ? table_lock_hash_keyless() : table_lock_hash(table), values, err) : NULL;
    free(key);
    if (!hash)
        return NULL; /* LCOV_EXCL_LINE */
    char class[16];
    snprintf(class, sizeof class, "(%d)", (int)table->lock_class);
    const struct sql_variable variables[] = {{"class", class}, {"hash", hash}, {NULL, NULL}};
    char *sql = sql_render(sql_dead_lock, variables, err);
    free(hash);
    return sql;
}

/* How the statements tell rows of one key from rows of one event without a key. */
static const struct {
    const char *noun, *match, *closed, *conflict, *keyless;
} kinds[2] = {
    {"key", "d.key = $2::text", "p.key = $2::text and not p.keyless", "(queue, key) where not keyless", "false"},
    {"event", "d.key is null and d.event_id = $2::text::bigint", "p.keyless and p.event_id = $2::text::bigint",
     "(queue, event_id) where keyless", "true"},
};

static bool render(struct dead_work *work, enum dead_action action, bool keyless, struct error *err)
{
    const struct table *table = work->table;
    struct dead_statements *st = &work->with[keyless];
    char key_is[1024] = "false";
    char *key = key_value(table, "$2::text", err);
    if (key && !keyless && table->key_sql)
        snprintf(key_is, sizeof key_is, "e.%s = %s", table->key_sql, key);
    free(key);
    const struct sql_variable variables[] = {{"table", table->name_sql},
                                             {"id", table->id_sql},
                                             {"columns", query_text(work->columns, 0, 0)},
                                             {"fields", query_text(work->columns, 0, 1)},
                                             {"known", query_text(work->columns, 0, 2)},
                                             {"moved", query_text(work->columns, 0, 3)},
                                             {"moved_to", query_text(work->columns, 0, 4)},
                                             {"key_is", key_is},
                                             {"match", kinds[keyless].match},
                                             {"closed", kinds[keyless].closed},
                                             {"conflict", kinds[keyless].conflict},
                                             {"keyless", kinds[keyless].keyless},
                                             {NULL, NULL}};
    st->lock = render_lock(table, keyless, err);
    st->letters = st->lock ? sql_render(action == DEAD_RETRY ? sql_dead_retry : sql_dead_drop, variables, err) : NULL;
    st->closed =
        st->letters ? sql_render(action == DEAD_RETRY ? sql_closed_retry : sql_closed_drop, variables, err) : NULL;
    return st->closed != NULL;
}

/* None has a value that would be lost without a word. */
static bool all_fit(const struct dead_work *work, const PGresult *put, struct error *err)
{
    const char *id = query_text(put, 0, 2), *column = query_text(put, 0, 3), *to = query_text(put, 0, 4);
    if (!id)
        return true;
    if (to)
        return error_set(err, ERROR_CONFLICT,
                         "dead letter %s has values in both columns, \"%s\" and \"%s\". Nothing was changed: retry it "
                         "with --column %s= if that one is to be lost",
                         id, column, to, column);
    return error_set(
        err, ERROR_CONFLICT,
        "dead letter %s has a value in column \"%s\", which %s has no more. Nothing was changed: add the "
        "column, or retry with --column %s=NEW to put such values into another one, or with --column %s= to "
        "lose them",
        id, column, work->table->plain_name, column, column);
}

/* As many rows as letters were taken: otherwise some would be gone when this is committed. */
static bool all_went_in(const struct dead_work *work, const PGresult *put, struct error *err)
{
    if (PQnfields(put) == 1)
        return true;
    if (!all_fit(work, put, err))
        return false;
    if (query_int(put, 0, 0) == query_int(put, 0, 1))
        return true;
    return error_set(err, ERROR_CONFLICT,
                     "%s of %s dead letters went into %s: a trigger keeps the others out. Nothing was changed: have it "
                     "return the row, and retry again",
                     query_text(put, 0, 1), query_text(put, 0, 0), work->table->plain_name);
}

static PGresult *ask(struct dead_work *work, const char *what, const char *sql, int count, const char *const *params,
                     struct error *err)
{
    PGresult *result = PQexecParams(work->conn, sql, count, NULL, params, NULL, NULL, 0);
    work->busy = query_is_blocked(result);
    return query_result(work->conn, what, result, err);
}

static bool count(struct dead_work *work, const char *what, const char *sql, const char *const params[4], int64_t *ret,
                  struct error *err)
{
    PGresult *result = ask(work, what, sql, 4, params, err);
    if (!result)
        return false;
    *ret = query_int(result, 0, 0);
    bool all_in = all_went_in(work, result, err);
    PQclear(result);
    return all_in;
}

static bool lock(struct dead_work *work, const char *sql, const char *name, struct error *err)
{
    char wait_ms[24];
    snprintf(wait_ms, sizeof wait_ms, "%" PRId64, work->wait_ms);
    const char *params[] = {name, wait_ms};
    PGresult *locked = ask(work, "waiting for its lock", sql, 2, params, err);
    if (locked)
        work->busy = !query_bool(locked, 0, 2);
    PQclear(locked);
    return locked && !work->busy;
}

/* Inside a transaction. `name` is the key, or the id of an event without one. */
static bool act_locked(struct dead_work *work, const struct dead_statements *st, const char *name,
                       struct dead_counts *ret, struct error *err)
{
    if (!lock(work, st->lock, name, err))
        return false;
    const char *params[4] = {work->queue->name, name, work->filter->id, work->filter->error};
    return count(work, "dead letters", st->letters, params, &ret->letters, err) &&
           count(work, "closed key", st->closed, params, &ret->keys, err);
}

/* True as well where it is busy, and nothing was done. */
static bool act_on(struct dead_work *work, const char *name, bool keyless, struct dead_counts *total, struct error *err)
{
    struct dead_counts done = {0};
    if (!query_script(work->conn, "begin", "begin isolation level read committed", err))
        return false;
    if (act_locked(work, &work->with[keyless], name, &done, err) && query_script(work->conn, "commit", "commit", err)) {
        total->letters += done.letters;
        total->keys += done.keys;
        return true;
    }
    struct error ignored; /* the first error is the one to report */
    bool over = query_script(work->conn, "rollback", "rollback", work->busy ? err : &ignored);
    return (work->busy && over) || error_prefix(err, "queue %s, %s %s", work->queue->name, kinds[keyless].noun, name);
}

static int64_t patience_ms(const struct dead_counts *counts)
{
    int64_t left_us = DEAD_PATIENCE_US - counts->waited_us;
    return left_us > 0 ? left_us / MS_US : 0;
}

/* The rows of sql/commands/dead_keys.sql. */
static const char *name_of(const PGresult *keys, int row, bool *ret_keyless)
{
    *ret_keyless = PQgetisnull(keys, row, 0);
    return query_text(keys, row, *ret_keyless);
}

/* All that are `left`: afterwards, those that are busy. */
static bool act_on_each(struct dead_work *work, const PGresult *keys, bool waits, bool *left, struct dead_counts *ret,
                        struct error *err)
{
    bool keyless;
    for (int row = 0; row < PQntuples(keys); row++) {
        if (!left[row])
            continue;
        instant_us began = clock_now();
        work->wait_ms = waits ? patience_ms(ret) : 0;
        const char *name = name_of(keys, row, &keyless);
        if (!act_on(work, name, keyless, ret, err))
            return false;
        left[row] = work->busy;
        ret->waited_us += waits ? clock_now() - began : 0;
    }
    return true;
}

static void add_busy(struct dead_counts *counts, const char *queue, const PGresult *keys, int row)
{
    if (counts->busy++ >= DEAD_NAMES)
        return;
    bool keyless;
    const char *name = name_of(keys, row, &keyless);
    size_t used = strlen(counts->busy_names);
    snprintf(counts->busy_names + used, sizeof counts->busy_names - used, "%squeue %s, %s %.*s", used > 0 ? "; " : "",
             queue, kinds[keyless].noun, (int)utf8_fit(span_of(name), NAME_BYTES), name);
}

/* None waits behind one that is busy. Those that are get in line for their locks only then: a relay that has more of a
 * key takes its lock again at once, unless somebody waits for it. */
static bool act_on_all(struct dead_work *work, struct dead_counts *ret, struct error *err)
{
    const char *params[] = {work->queue->name, work->filter->key, work->filter->id, work->filter->error};
    PGresult *keys = query(work->conn, "dead letters", sql_dead_keys, 4, params, err);
    if (!keys)
        return false;
    int rows = PQntuples(keys);
    bool *left = memory_array((size_t)rows + 1, sizeof *left);
    for (int row = 0; row < rows; row++)
        left[row] = true;
    bool ok = act_on_each(work, keys, false, left, ret, err) && act_on_each(work, keys, true, left, ret, err);
    for (int row = 0; ok && row < rows; row++)
        if (left[row])
            add_busy(ret, work->queue->name, keys, row);
    free(left);
    PQclear(keys);
    return ok;
}

/* What --column says of this table. */
static bool check_moves(const struct dead_work *work, struct error *err)
{
    const char *there = query_text(work->columns, 0, 5), *absent = query_text(work->columns, 0, 6),
               *twice = query_text(work->columns, 0, 7), *table = work->table->plain_name;
    if (there)
        return error_set(
            err, ERROR_USAGE,
            "--column %s=: %s of queue %s has that column; for the table of another queue give --queue, too", there,
            table, work->queue->name);
    if (absent)
        return error_set(err, ERROR_USAGE,
                         "--column ...=%s: %s of queue %s has no column of that name to put values into", absent, table,
                         work->queue->name);
    return !twice || error_set(err, ERROR_USAGE, "--column: %s is there twice", twice);
}

static bool prepare(struct dead_work *work, enum dead_action action, struct error *err)
{
    char oid[16];
    snprintf(oid, sizeof oid, "%u", work->table->oid);
    const struct column_moves *moves = work->filter->moves;
    const char *params[] = {oid, moves && moves->from ? moves->from : "{}", moves && moves->to ? moves->to : "{}"};
    work->columns = query(work->conn, work->table->plain_name, sql_dead_columns, 3, params, err);
    return work->columns && check_moves(work, err) && render(work, action, false, err) &&
           render(work, action, true, err);
}

bool dead_act(PGconn *conn, const struct queue_config *queue, enum dead_action action, const struct dead_filter *filter,
              struct dead_counts *ret, struct error *err)
{
    struct table *table = table_inspect(conn, queue, err);
    if (!table)
        return false;
    struct dead_work work = {.conn = conn, .queue = queue, .table = table, .filter = filter};
    bool ok = prepare(&work, action, err) && act_on_all(&work, ret, err);
    if (!ok)
        privilege_explain(conn, table->oid, action == DEAD_RETRY ? "{dead retry}" : "{dead drop}", err);
    for (size_t i = 0; i < 2; i++) {
        free(work.with[i].lock);
        free(work.with[i].letters);
        free(work.with[i].closed);
    }
    PQclear(work.columns);
    table_free(table);
    return ok;
}
