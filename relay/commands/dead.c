#include "relay/commands/dead.h"

#include "relay/base/arena.h"
#include "relay/commands/dead_letters.h"
#include "relay/commands/dead_statements.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "relay/table/table.h"
#include "sql_text.h"

#include <stdlib.h>
#include <string.h>

/* What came of a closed key: KEY_TOLD, it stays closed, for a reason that was told. */
enum key_end { KEY_DONE, KEY_BUSY, KEY_FAILED, KEY_TOLD };

/* Code of the table's owner has raised it, or a constraint. */
static bool is_of_row(const PGresult *failed)
{
    const char *code = PQresultErrorField(failed, PG_DIAG_SQLSTATE);
    return code && (strncmp(code, "P0", 2) == 0 || strncmp(code, "23", 2) == 0 || strncmp(code, "22", 2) == 0);
}

/* Inside a transaction. `name` is the key, or the id of an event without one. */
static enum key_end act_locked(struct dead_work *work, bool keyless, const char *name, int64_t *ret, struct error *err)
{
    if (!dead_work_lock(work, keyless, name, err))
        return work->busy ? KEY_BUSY : KEY_FAILED;
    const char *params[4] = {work->queue->name, name, work->filter->id, work->filter->error};
    PGresult *done = PQexecParams(work->conn, work->with[keyless].closed, 4, NULL, params, NULL, NULL, 0);
    if (PQresultStatus(done) == PGRES_TUPLES_OK)
        *ret = query_int(done, 0, 0);
    if (is_of_row(done))
        dead_work_refuse(work, keyless ? name : NULL, keyless ? NULL : name, done);
    enum key_end end = PQresultStatus(done) == PGRES_TUPLES_OK ? KEY_DONE
                       : query_is_blocked(done)                ? KEY_BUSY
                       : is_of_row(done)                       ? KEY_TOLD
                                                               : KEY_FAILED;
    if (end == KEY_FAILED)
        done = query_result(work->conn, "closed key", done, err);
    PQclear(done);
    return end;
}

static enum key_end act_on(struct dead_work *work, bool keyless, const char *name, struct error *err)
{
    int64_t opened = 0;
    if (!query_script(work->conn, "begin", "begin isolation level read committed", err))
        return KEY_FAILED;
    enum key_end end = act_locked(work, keyless, name, &opened, err);
    if (end == KEY_DONE && query_script(work->conn, "commit", "commit", err)) {
        work->counts->keys += opened;
        return KEY_DONE;
    }
    end = end == KEY_DONE ? KEY_FAILED : end;
    struct error ignored; /* the first error is the one to report */
    bool over = query_script(work->conn, "rollback", "rollback", end == KEY_FAILED ? &ignored : err);
    if (end != KEY_FAILED && over)
        return end;
    error_prefix(err, "queue %s, %s %s", work->queue->name, dead_work_noun(keyless), name);
    return KEY_FAILED;
}

/* The rows of sql/commands/closed_keys.sql. */
static const char *name_of(const PGresult *keys, int row, bool *ret_keyless)
{
    *ret_keyless = PQgetisnull(keys, row, 0);
    return query_text(keys, row, *ret_keyless);
}

/* All that are `left`: afterwards, those that are busy. */
static bool act_on_each(struct dead_work *work, const PGresult *keys, bool waits, bool *left, struct error *err)
{
    bool keyless;
    for (int row = 0; row < PQntuples(keys); row++) {
        if (!left[row])
            continue;
        instant_us began = clock_now();
        work->wait_ms = waits ? dead_work_patience_ms(work) : 0;
        const char *name = name_of(keys, row, &keyless);
        enum key_end end = act_on(work, keyless, name, err);
        if (end == KEY_FAILED)
            return false;
        left[row] = end == KEY_BUSY;
        work->counts->waited_us += waits ? clock_now() - began : 0;
    }
    return true;
}

/* None waits behind one that is busy. Those that are get in line for their locks only then: a relay that has more of a
 * key takes its lock again at once, unless somebody waits for it. */
static bool act_on_closed(struct dead_work *work, struct error *err)
{
    const char *params[] = {work->queue->name, work->filter->key, work->filter->id, work->filter->error};
    PGresult *keys = query(work->conn, "closed keys", sql_closed_keys, 4, params, err);
    if (!keys)
        return false;
    int rows = PQntuples(keys);
    bool *left = memory_array((size_t)rows + 1, sizeof *left), keyless;
    for (int row = 0; row < rows; row++)
        left[row] = true;
    bool ok = act_on_each(work, keys, false, left, err) && act_on_each(work, keys, true, left, err);
    for (int row = 0; ok && row < rows; row++)
        if (left[row]) {
            const char *name = name_of(keys, row, &keyless);
            dead_work_add_busy(work, keyless, name);
        }
    free(left);
    PQclear(keys);
    return ok;
}

bool dead_act(PGconn *conn, const struct queue_config *queue, enum dead_action action, const struct dead_filter *filter,
              struct dead_counts *counts, struct error *err)
{
    struct table *table = table_inspect(conn, queue, err);
    if (!table)
        return false;
    struct dead_work work = {
        .conn = conn, .queue = queue, .table = table, .filter = filter, .action = action, .counts = counts};
    bool ok = dead_statements_make(&work, err) && dead_letters_act(&work, err) && act_on_closed(&work, err);
    if (!ok)
        privilege_explain(conn, table->oid, action == DEAD_RETRY ? "{dead retry}" : "{dead drop}", err);
    dead_statements_free(&work);
    table_free(table);
    return ok;
}
