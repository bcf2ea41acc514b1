#include "relay/commands/dead_statements.h"

#include "relay/base/arena.h"
#include "relay/base/statement.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The columns of sql/commands/dead_columns.sql. */
enum {
    COLUMNS_GIVEN,
    COLUMNS_FIELDS,
    COLUMNS_KNOWN,
    COLUMNS_MOVED,
    COLUMNS_MOVED_TO,
    COLUMNS_THERE,
    COLUMNS_ABSENT,
    COLUMNS_TWICE,
    COLUMNS_GENERATED,
    COLUMNS_COMPUTED,
    COLUMNS_COMPARED,
    COLUMNS_COMPUTES,
    COLUMNS_PAYLOAD,
    COLUMNS_MAPPED,
    COLUMNS_PUT_ID,
    COLUMNS_KEY
};

/* How the statements tell rows of keys from rows of events without a key. `id`: what such an event's lock is for, as a
 * number; a key may be any text, and the mapping may have changed since. */
static const struct {
    const char *closed, *conflict, *keyless, *name, *entry_key, *entry, *id;
} kinds[2] = {
    {"p.key = $2::text and not p.keyless", "(queue, key) where not keyless", "false", "d.key", "d.key", "d.key",
     "case when :name ~ '^-?[0-9]{1,18}$' then :name::bigint end"},
    {"p.keyless and p.event_id = $2::text::bigint", "(queue, event_id) where keyless", "true", "d.event_id::text", "''",
     "d.event_id", ":name::bigint"},
};

/* The parameter `text` as a value of the key column's type; free() it. */
static char *key_value(const struct table *table, const char *text, struct error *err)
{
    return sql_render(table_key_of_text(table), (const struct sql_variable[]){{"text", text}, {NULL, NULL}}, err);
}

/* The second half of the lock of the key, or event, that the expression `name` is; free() it. */
static char *lock_hash(const struct table *table, bool keyless, const char *name, struct error *err)
{
    char *key = key_value(table, name, err);
    char *id =
        key ? sql_render(kinds[keyless].id, (const struct sql_variable[]){{"name", name}, {NULL, NULL}}, err) : NULL;
    const struct sql_variable values[] = {{"key", key}, {"id", id}, {NULL, NULL}};
    char *hash = id ? sql_render(keyless ? table_lock_hash_keyless() : table_lock_hash(table), values, err) : NULL;
    free(key);
    free(id);
    return hash;
}

static char *render_lock(const struct table *table, const char *template, bool keyless, const char *name,
                         struct error *err)
{
    char class[16], *hash = lock_hash(table, keyless, name, err);
    if (!hash)
        return NULL; /* LCOV_EXCL_LINE */
    snprintf(class, sizeof class, "(%d)", (int)table->lock_class);
    const struct sql_variable variables[] = {
        {"class", class}, {"hash", hash}, {"hash_of_name", hash}, {"name", kinds[keyless].name}, {NULL, NULL}};
    char *sql = sql_render(template, variables, err);
    free(hash);
    return sql;
}

static bool render(struct dead_work *work, const PGresult *columns, bool keyless, struct arena *arena,
                   struct error *err)
{
    const struct table *table = work->table;
    struct dead_statements *st = &work->with[keyless];
    const char *key_is = "false";
    char *key = key_value(table, "$2::text", err);
    if (key && !keyless && table->key_sql)
        key_is = arena_printf(arena, "e.%s = %s", table->key_sql, key);
    free(key);
    const struct sql_variable variables[] = {{"table", table->name_sql},
                                             {"id", table->id_sql},
                                             {"columns", query_text(columns, 0, COLUMNS_GIVEN)},
                                             {"fields", query_text(columns, 0, COLUMNS_FIELDS)},
                                             {"known", query_text(columns, 0, COLUMNS_KNOWN)},
                                             {"moved", query_text(columns, 0, COLUMNS_MOVED)},
                                             {"moved_to", query_text(columns, 0, COLUMNS_MOVED_TO)},
                                             {"generated", query_text(columns, 0, COLUMNS_GENERATED)},
                                             {"computed", query_text(columns, 0, COLUMNS_COMPUTED)},
                                             {"compared", query_text(columns, 0, COLUMNS_COMPARED)},
                                             {"computes", query_text(columns, 0, COLUMNS_COMPUTES)},
                                             {"payload", query_text(columns, 0, COLUMNS_PAYLOAD)},
                                             {"mapped", query_text(columns, 0, COLUMNS_MAPPED)},
                                             {"key_is", key_is},
                                             {"put_id", query_text(columns, 0, COLUMNS_PUT_ID)},
                                             {"key_column", query_text(columns, 0, COLUMNS_KEY)},
                                             {"closed", kinds[keyless].closed},
                                             {"conflict", kinds[keyless].conflict},
                                             {"keyless", kinds[keyless].keyless},
                                             {"entry_key", kinds[keyless].entry_key},
                                             {"entry", kinds[keyless].entry},
                                             {NULL, NULL}};
    bool retry = work->action == DEAD_RETRY;
    st->lock = render_lock(table, sql_dead_lock, keyless, "$1::text", err);
    st->try = st->lock ? render_lock(table, sql_dead_try, keyless, "n.name", err) : NULL;
    st->unfit = st->try && retry ? sql_render(sql_dead_unfit, variables, err) : NULL;
    st->letters =
        st->try && (st->unfit || !retry) ? sql_render(retry ? sql_dead_retry : sql_dead_drop, variables, err) : NULL;
    st->closed = st->letters ? sql_render(retry ? sql_closed_retry : sql_closed_drop, variables, err) : NULL;
    return st->closed != NULL;
}

/* What --column says of this table. */
static bool check_moves(const struct dead_work *work, const PGresult *columns, struct error *err)
{
    const char *there = query_text(columns, 0, COLUMNS_THERE), *absent = query_text(columns, 0, COLUMNS_ABSENT),
               *twice = query_text(columns, 0, COLUMNS_TWICE), *table = work->table->plain_name;
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

/* All columns that the queue maps, with dots between. */
static const char *mapped(const struct table *table, struct arena *arena)
{
    const char *const more[] = {
        table_sent_key(table),  table->type_sql,       table->payload_sql,    table->headers_sql, table->event_id_sql,
        table->traceparent_sql, table->created_at_sql, table->not_before_sql, table->after_sql,   table->priority_sql};
    const char *names = table->id_sql;
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        if (more[i])
            names = arena_printf(arena, "%s.%s", names, more[i]);
    return names;
}

bool dead_statements_make(struct dead_work *work, struct error *err)
{
    char oid[16];
    snprintf(oid, sizeof oid, "%u", work->table->oid);
    struct arena *arena = arena_new();
    const struct column_moves *moves = work->filter->moves;
    const char *params[] = {oid,
                            moves && moves->from ? moves->from : "{}",
                            moves && moves->to ? moves->to : "{}",
                            work->table->payload_sql,
                            mapped(work->table, arena),
                            work->table->key_sql};
    PGresult *columns = query(work->conn, work->table->plain_name, sql_dead_columns, 6, params, err);
    bool ok = columns && check_moves(work, columns, err) && render(work, columns, false, arena, err) &&
              render(work, columns, true, arena, err);
    PQclear(columns);
    arena_free(arena);
    return ok;
}

void dead_statements_free(struct dead_work *work)
{
    for (size_t i = 0; i < 2; i++) {
        struct dead_statements *st = &work->with[i];
        free(st->lock);
        free(st->try);
        free(st->unfit);
        free(st->letters);
        free(st->closed);
        *st = (struct dead_statements){0};
    }
}
