#include "relay/commands/command.h"
#include "relay/commands/database.h"
#include "relay/commands/options.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <stdio.h>

/* Each migration is one transaction with its row in schema_version, and takes the lock anew: that works behind a
 * transaction pooler, and what another migrate did in between is seen. */

struct migrate_options {
    struct database database;
    bool print;
};

static const struct option_row option_rows[] = {{"print", 'p', NULL,
                                                 "write the SQL to standard output and connect to nothing",
                                                 .offset = offsetof(struct migrate_options, print)},
                                                {.name = NULL}};

static const struct options options = {
    .rows = option_rows,
    .database = true,
    .doc = "Brings the outbox schema of a database up to this version of pgcourier."
           "\vMigrations only go forward, each in a transaction of its own, and one pgcourier migrate at a time "
           "applies them. What is there already is left alone, so it may be run at every deployment.",
};

/* For the transaction only: a session that a pooler shares goes on to others. */
static const char begin[] = "begin; set local search_path to pg_catalog, pg_temp";

static int newest_known(void)
{
    int version = 0;
    for (const struct sql_migration *migration = sql_schema; migration->version; migration++)
        version = migration->version;
    return version;
}

/* What guard() does, as SQL: whoever runs it with psql may have it go on after an error, but in no transaction. */
static void print_guard(FILE *out)
{
    fprintf(out,
            "do $do$\ndeclare\n    refusal pg_catalog.text;\nbegin\n    execute $guard$\n%s$guard$ into refusal;\n"
            "    if refusal is not null then\n        raise exception '%%', refusal using errcode = "
            "'insufficient_privilege';\n    end if;\nend\n$do$;\n",
            sql_schema_guard);
}

static void print_all(FILE *out)
{
    for (const struct sql_migration *migration = sql_schema; migration->version; migration++) {
        fputs("begin;\nset local lock_timeout = '5s';\nset local search_path = pg_catalog, pg_temp;\n", out);
        print_guard(out);
        fprintf(out, "%s\ninsert into outbox.schema_version (version, name) values (%d, '%s');\ncommit;\n\n",
                migration->text, migration->version, migration->name);
    }
}

/* What has to be said is said in one line on stderr: the severity and the place in the SQL help nobody. */
static void show_notice(void *unused, const PGresult *notice)
{
    (void)unused;
    fprintf(stderr, "pgcourier: %s\n", PQresultErrorField(notice, PG_DIAG_MESSAGE_PRIMARY));
}

/* Is the schema outbox, if there is one, nobody's who could lead us astray? */
static bool guard(PGconn *conn, struct error *err)
{
    PGresult *result = query(conn, "looking at the outbox schema's owner", sql_schema_guard, 0, NULL, err);
    if (!result)
        return false;
    bool allowed = PQntuples(result) == 0 || error_set(err, ERROR_PERMISSION, "%s", query_text(result, 0, 0));
    PQclear(result);
    return allowed;
}

/* First whether there is a table, then whose it is, and only then what is in it: what the guard has let pass, nobody
 * but who may be trusted can exchange. In a transaction that begin[] began. */
static bool installed_version(PGconn *conn, int *ret, struct error *err)
{
    PGresult *result = query(conn, "looking for the outbox schema", sql_schema_exists, 0, NULL, err);
    if (!result)
        return false;
    bool exists = query_bool(result, 0, 0);
    PQclear(result);
    if (!guard(conn, err))
        return false;
    if (!exists) {
        *ret = 0;
        return true;
    }
    result = query(conn, "reading outbox.schema_version", sql_schema_newest, 0, NULL, err);
    if (!result)
        return false;
    *ret = (int)query_int(result, 0, 0);
    PQclear(result);
    if (*ret > newest_known())
        return error_set(
            err, ERROR_CONFIG,
            "the database's outbox schema has version %d and this pgcourier knows up to %d; install a newer pgcourier",
            *ret, newest_known());
    return true;
}

static bool record(PGconn *conn, const struct sql_migration *migration, struct error *err)
{
    char version[16];
    snprintf(version, sizeof version, "%d", migration->version);
    const char *params[] = {version, migration->name};
    PGresult *result = query(conn, "outbox.schema_version", sql_schema_record, 2, params, err);
    PQclear(result);
    return result != NULL;
}

static bool lock(PGconn *conn, struct error *err)
{
    PGresult *result = query(conn, "another pgcourier migrate is running", sql_schema_lock, 0, NULL, err);
    PQclear(result);
    return result != NULL;
}

/* Inside a transaction that the caller ends. *ret_applied: it was not there already. */
static bool apply_locked(PGconn *conn, const struct sql_migration *migration, bool *ret_applied, struct error *err)
{
    int installed;
    if (!lock(conn, err) || !installed_version(conn, &installed, err))
        return false;
    *ret_applied = installed < migration->version;
    if (!*ret_applied)
        return true;
    return query_script(conn, migration->name, migration->text, err) && record(conn, migration, err);
}

/* Commits when `good`, else rolls back; the error of what failed before is the one to report. Returns whether it
 * committed. */
static bool finish(PGconn *conn, const char *what, bool good, struct error *err)
{
    struct error ignored;
    if (good)
        return query_script(conn, what, "commit", err);
    (void)!query_script(conn, what, "rollback", &ignored);
    return false;
}

static bool apply(PGconn *conn, const struct sql_migration *migration, bool *ret_applied, struct error *err)
{
    if (!query_script(conn, migration->name, begin, err))
        return false;
    return finish(conn, migration->name, apply_locked(conn, migration, ret_applied, err), err);
}

static bool apply_missing(PGconn *conn, struct error *err)
{
    int installed;
    if (!query_script(conn, "migrate", begin, err) ||
        !finish(conn, "migrate", installed_version(conn, &installed, err), err))
        return false;
    size_t count = 0;
    for (const struct sql_migration *migration = sql_schema; migration->version; migration++) {
        bool applied = false;
        if (migration->version > installed && !apply(conn, migration, &applied, err))
            return false;
        if (applied)
            printf("applied %s\n", migration->name);
        count += applied;
    }
    if (count == 0)
        printf("nothing to do: the outbox schema has version %d\n", newest_known());
    return true;
}

static int run(int argc, char **argv)
{
    struct migrate_options given = {0};
    struct error err;
    options_parse(&options, argc, argv, &given);
    if (given.print) {
        print_all(stdout);
        return EXIT_OK;
    }
    PGconn *conn = database_connect(&given.database, "migrate", &err);
    if (!conn)
        return command_fail(&err);
    PQsetNoticeReceiver(conn, show_notice, NULL);
    bool ok = apply_missing(conn, &err) || privilege_explain(conn, 0, "{migrate}", &err);
    PQfinish(conn);
    return ok ? EXIT_OK : command_fail(&err);
}

const struct command command_migrate = {"migrate", "create or upgrade the outbox schema", run};
