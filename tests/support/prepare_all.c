/* Prepares every statement in sql/ for every queue of a configuration on a real server.
 *
 *   prepare_all CONFIG SQL_FOLDER
 *
 * Prints one line a statement, "QUEUE FILE" and what is wrong with it, if anything is; exits 1 if something was. The
 * files are read here and not from the binary, so that none is forgotten. */
#include "relay/base/arena.h"
#include "relay/base/file.h"
#include "relay/base/statement.h"
#include "relay/commands/command.h"
#include "relay/config/config.h"
#include "relay/postgres/connect.h"
#include "relay/table/table.h"
#include "relay/table/table_sql.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>

#define VARIABLES_MAX 80
#define FILE_MAX ((size_t)1 << 20)

/* What relay/commands/dead_statements.c puts in, for a key and for an event without one. */
static const struct sql_variable dead_variables[2][10] = {
    {{"name", "d.key"},
     {"entry_key", "d.key"},
     {"entry", "d.key"},
     {"closed", "p.key = $2::text and not p.keyless"},
     {"conflict", "(queue, key) where not keyless"},
     {"keyless", "false"},
     {"class", "(7)"},
     {"hash", "hashtext($1::text)"},
     {"hash_of_name", "hashtext(n.name)"},
     {NULL, NULL}},
    {{"name", "d.event_id::text"},
     {"entry_key", "''"},
     {"entry", "d.event_id"},
     {"closed", "p.keyless and p.event_id = $2::text::bigint"},
     {"conflict", "(queue, event_id) where keyless"},
     {"keyless", "true"},
     {"class", "(-7)"},
     {"hash", "hashint8($1::text::bigint)"},
     {"hash_of_name", "hashint8(n.name::bigint)"},
     {NULL, NULL}},
};

struct work {
    PGconn *conn;
    struct arena *arena;
    const struct queue_config *queue;
    const struct table *table;
    bool guarded; /* as they are while there are rows that cannot be read */
    struct sql_variable variables[VARIABLES_MAX];
    size_t variable_count;
    size_t prepared, failed;
};

static void put(struct work *work, const char *name, const char *text)
{
    size_t i = 0;
    while (i < work->variable_count && strcmp(work->variables[i].name, name) != 0)
        i++;
    if (i == work->variable_count)
        work->variable_count++;
    if (work->variable_count >= VARIABLES_MAX)
        abort();
    work->variables[i] = (struct sql_variable){name, text};
}

/* The one-shot commands name columns without an alias. */
static void put_plain_names(struct work *work)
{
    const struct table *table = work->table;
    put(work, "id", table->id_sql);
    put(work, "created_at", table->created_at_sql ? table->created_at_sql : "null::timestamptz");
}

/* What lock_events.sql looks at: priorities, or ids where there is none. */
static void put_look(struct work *work)
{
    const char *id = work->table->id_sql, *priority = work->table->priority_sql, *by = priority ? priority : id;
    put(work, "seen", arena_printf(work->arena, "e.%s as id, e.%s as rank", id, by));
    put(work, "stretch", arena_printf(work->arena, "e.%s between $1::bigint and $2::bigint", by));
    put(work, "sort", arena_printf(work->arena, "e.%s desc", by));
    put(work, "first", "f.rank desc nulls last, f.id");
    put(work, "by", "o.rank");
    put(work, "all", priority ? "false" : "true");
}

static void put_variables(struct work *work, const char *path, bool dead, bool keyless)
{
    const struct table *table = work->table;
    struct queue_config queue = *work->queue;
    if (strstr(path, "_archive.sql"))
        queue.after = AFTER_ARCHIVE;
    memset(work->variables, 0, sizeof work->variables);
    work->variable_count = 0;
    const struct sql_variable *of_table = work->guarded ? table_guarded_variables(table, &queue, work->arena)
                                                        : table_variables(table, &queue, work->arena);
    for (const struct sql_variable *v = of_table; v->name; v++)
        put(work, v->name, v->text);
    put(work, "wanted", "true");
    put(work, "rows", "1000");
    put(work, "order", "desc"); /* of lock_ids.sql: ordering/claim_sections.c asks it from the other end, too */
    put(work, "near", "high");
    put(work, "behind", "<=");
    put_look(work);
    if (dead)
        put_plain_names(work);
    if (!dead)
        return;
    for (const struct sql_variable *v = dead_variables[keyless]; v->name; v++)
        put(work, v->name, v->text);
    put(work, "columns", table->id_sql);
    put(work, "fields", arena_printf(work->arena, "r.%s", table->id_sql));
    put(work, "known", "'{a}'::text[]");
    put(work, "moved", "'{b}'::text[]");
    put(work, "moved_to", "'{NULL}'::text[]");
    put(work, "generated", "'{b}'::text[]");
    put(work, "computed", "array[e.tableoid::text]");
    put(work, "compared", "('b', p.computed[1], r.*::text)");
    put(work, "computes", "true");
    put(work, "payload", "'c'::text");
    put(work, "mapped", "'{a}'::text[]");
    put(work, "put_id", arena_printf(work->arena, "e.%s::bigint", table->id_sql));
    put(work, "key_column", "'b'::text");
    put(work, "key_is", table->key_sql ? arena_printf(work->arena, "e.%s::text = $2::text", table->key_sql) : "false");
}

static void put_written_key(struct work *work)
{
    static const struct sql_variable text[] = {{"text", "$1::text"}, {NULL, NULL}};
    struct error err;
    char *key = sql_render(table_key_of_text(work->table), text, &err);
    const struct sql_variable of_key[] = {{"key", key}, {"id", "null::bigint"}, {NULL, NULL}};
    char *hash = sql_render(table_lock_hash(work->table), of_key, &err);
    put(work, "written", arena_printf(work->arena, "%s", key));
    put(work, "hash", arena_printf(work->arena, "%s", hash));
    free(key);
    free(hash);
}

static void prepare(struct work *work, const char *path, const char *template)
{
    struct error err = {.text = ""};
    char *sql = sql_render(template, work->variables, &err);
    PGresult *res = sql ? PQprepare(work->conn, "", sql, 0, NULL) : NULL;
    bool ok = PQresultStatus(res) == PGRES_COMMAND_OK;
    printf("%s %s%s%s", work->queue->name, path, ok ? "\n" : ": ",
           ok    ? ""
           : sql ? PQresultErrorMessage(res)
                 : err.text);
    work->prepared += ok;
    work->failed += !ok;
    PQclear(res);
    free(sql);
}

/* Statements that relay/ runs for some tables only. */
static bool applies(const struct work *work, const char *path)
{
    if (strstr(path, "/horizon_drawn.sql"))
        return work->table->sequence_sql != NULL;
    if (strstr(path, "/lock_events.sql"))
        return work->queue->unordered;
    if (strstr(path, "_next"))
        return work->table->next != NULL;
    if (strstr(path, "/deleted_by_"))
        return false; /* it is in others, as :deleted */
    return !strstr(path, "/table_filter.sql") || work->queue->where;
}

static bool prepare_file(struct work *work, const char *path, struct error *err)
{
    char *template = file_read(path, FILE_MAX, &(size_t){0}, err);
    if (!template)
        return error_prefix(err, "%s", path);
    bool dead = strstr(path, "/dead_") != NULL || strstr(path, "/closed_") != NULL;
    for (int keyless = 0; keyless <= dead && applies(work, path); keyless++) {
        put_variables(work, path, dead, keyless);
        if (strstr(path, "/pause_key.sql"))
            put_written_key(work);
        prepare(work, path, template);
    }
    free(template);
    return true;
}

/* Several statements in one message, which cannot be prepared. */
static bool is_script(const char *path)
{
    return strstr(path, "/schema/") || strstr(path, "/state/") || strstr(path, "/bench_create.sql") ||
           strstr(path, "/bench_drop.sql");
}

static bool prepare_for(struct work *work, const char *folder, struct error *err)
{
    char pattern[1024];
    snprintf(pattern, sizeof pattern, "%s/*/*.sql", folder);
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0)
        return error_set(err, ERROR_CONFIG, "no files %s", pattern);
    bool ok = true;
    for (size_t i = 0; ok && i < found.gl_pathc; i++)
        ok = is_script(found.gl_pathv[i]) || prepare_file(work, found.gl_pathv[i], err);
    globfree(&found);
    return ok;
}

int main(int argc, char **argv)
{
    struct error err;
    if (argc != 3)
        return EXIT_FAILURE;
    struct config *config = config_load(argv[1], &err);
    PGconn *conn = config ? command_connect(config->database, "prepare_all", &err) : NULL;
    struct work work = {.conn = conn, .arena = arena_new()};
    bool ok = conn != NULL;
    for (size_t i = 0; ok && i < config->queue_count; i++) {
        struct table *table = table_inspect(conn, &config->queues[i], &err);
        work.queue = &config->queues[i];
        work.table = table;
        for (int guarded = 0; table && ok && guarded <= 1; guarded++) {
            work.guarded = guarded;
            ok = prepare_for(&work, argv[2], &err);
        }
        ok = ok && table;
        table_free(table);
    }
    if (!ok)
        printf("%s\n", err.text);
    printf("prepared %zu failed %zu\n", work.prepared, work.failed);
    arena_free(work.arena);
    PQfinish(conn);
    config_free(config);
    return ok && work.failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
