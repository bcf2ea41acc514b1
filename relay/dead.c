#include "relay/dead.h"

#include "relay/base/arena.h"
#include "relay/base/statement.h"
#include "relay/privilege.h"
#include "relay/query.h"
#include "relay/table.h"
#include "sql_text.h"

#include <stdio.h>
#include <stdlib.h>

/* The statements of one action, for keys or for events without one. */
struct dead_statements {
    char *lock, *letters, *closed;
};

struct dead_work {
    PGconn *conn;
    const struct queue_config *queue;
    const struct table *table;
    const struct dead_filter *filter;
    PGresult *columns;              /* sql/dead/dead_columns.sql */
    struct dead_statements with[2]; /* [0] of a key, [1] of an event without a key */
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
    const char *match, *closed, *conflict, *keyless;
} kinds[2] = {
    {"d.key = $2::text", "p.key = $2::text and not p.keyless", "(queue, key) where not keyless", "false"},
    {"d.key is null and d.event_id = $2::text::bigint", "p.keyless and p.event_id = $2::text::bigint",
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

/* As many rows as letters were taken: otherwise some would be gone when this is committed. */
static bool all_went_in(const struct dead_work *work, const PGresult *put, struct error *err)
{
    if (PQnfields(put) == 1 || query_int(put, 0, 0) == query_int(put, 0, 1))
        return true;
    return error_set(err, ERROR_CONFLICT,
                     "%s of %s dead letters went into %s: a trigger keeps the others out. Nothing was changed: have it "
                     "return the row, and retry again",
                     query_text(put, 0, 1), query_text(put, 0, 0), work->table->plain_name);
}

static bool count(struct dead_work *work, const char *what, const char *sql, const char *const params[4], int64_t *ret,
                  struct error *err)
{
    PGresult *result = query(work->conn, what, sql, 4, params, err);
    if (!result)
        return false;
    *ret = query_int(result, 0, 0);
    bool whole = all_went_in(work, result, err);
    PQclear(result);
    return whole;
}

/* Inside a transaction. `name` is the key, or the id of an event without one. */
static bool act_locked(struct dead_work *work, const struct dead_statements *st, const char *name,
                       struct dead_counts *ret, struct error *err)
{
    PGresult *locked = query(work->conn, "waiting for its lock", st->lock, 1, &name, err);
    PQclear(locked);
    if (!locked)
        return false;
    const char *params[4] = {work->queue->name, name, work->filter->id, work->filter->error};
    return count(work, "dead letters", st->letters, params, &ret->letters, err) &&
           count(work, "closed key", st->closed, params, &ret->keys, err);
}

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
    (void)!query_script(work->conn, "rollback", "rollback", &ignored);
    return error_prefix(err, "queue %s, %s %s", work->queue->name, keyless ? "event" : "key", name);
}

static bool act_on_all(struct dead_work *work, struct dead_counts *ret, struct error *err)
{
    const char *params[] = {work->queue->name, work->filter->key, work->filter->id, work->filter->error};
    PGresult *keys = query(work->conn, "dead letters", sql_dead_keys, 4, params, err);
    bool ok = keys != NULL;
    for (int row = 0; ok && row < PQntuples(keys); row++) {
        const char *key = query_text(keys, row, 0);
        ok = act_on(work, key ? key : query_text(keys, row, 1), key == NULL, ret, err);
    }
    PQclear(keys);
    return ok;
}

static bool prepare(struct dead_work *work, enum dead_action action, struct error *err)
{
    char oid[16];
    snprintf(oid, sizeof oid, "%u", work->table->oid);
    const char *params[] = {oid};
    work->columns = query(work->conn, work->table->plain_name, sql_dead_columns, 1, params, err);
    return work->columns && render(work, action, false, err) && render(work, action, true, err);
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
