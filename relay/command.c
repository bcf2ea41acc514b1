#include "relay/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_TIMEOUT_S "10"

/* Rows that are not here are a bug's: 70. */
static const struct {
    enum error_kind kind;
    enum exit_code code;
} exit_codes[] = {
    {ERROR_NONE, EXIT_OK},
    {ERROR_USAGE, EXIT_USAGE},
    {ERROR_REFUSED, EXIT_USAGE}, /* a value, and a command has its values from its arguments */
    {ERROR_CONFIG, EXIT_CONFIG},
    {ERROR_ROUTE, EXIT_CONFIG},
    {ERROR_PERMISSION, EXIT_NOPERM},
    {ERROR_UNREACHABLE, EXIT_UNAVAILABLE},
    {ERROR_OVERLOADED, EXIT_TEMPFAIL},
    {ERROR_TIMEOUT, EXIT_TEMPFAIL},
    {ERROR_CONFLICT, EXIT_TEMPFAIL},
    {ERROR_LOST_CLAIM, EXIT_TEMPFAIL},
    {ERROR_RESOURCE, EXIT_TEMPFAIL},
};

int exit_code_of(enum error_kind kind)
{
    for (size_t i = 0; i < sizeof exit_codes / sizeof exit_codes[0]; i++)
        if (exit_codes[i].kind == kind)
            return (int)exit_codes[i].code;
    return EXIT_SOFTWARE;
}

int command_fail(const struct error *err)
{
    fprintf(stderr, "pgcourier: %s\n", err->text);
    return exit_code_of(err->kind);
}

/* libpq gives no SQLSTATE for a connection that was refused, only text, and that in the server's language. What it does
 * tell apart: did the server answer (so it said why) or was there nobody? */
static enum error_kind failed_connection_kind(const PGconn *conn)
{
    if (PQconnectionNeedsPassword(conn) || PQconnectionUsedPassword(conn))
        return ERROR_PERMISSION;
    return ERROR_UNREACHABLE;
}

static bool run(PGconn *conn, const char *sql, struct error *err)
{
    PGresult *result = PQexec(conn, sql);
    bool good = PQresultStatus(result) == PGRES_COMMAND_OK;
    if (!good) {
        /* PgBouncer says this at the first transaction and hangs up; libpq's last result is about the latter. */
        bool statement_mode = strstr(PQerrorMessage(conn), "statement pooling mode") != NULL;
        error_set(err, statement_mode ? ERROR_CONFIG : ERROR_UNREACHABLE, "database: %s%s", PQerrorMessage(conn),
                  statement_mode ? "; a pooler has to be in transaction or session mode" : "");
    }
    PQclear(result);
    return good;
}

/* The session settings that every statement of ours relies on, and transactions. */
static bool prepare_session(PGconn *conn, struct error *err)
{
    const char *encoding = PQparameterStatus(conn, "server_encoding");
    /* The server cannot convert SQL_ASCII, so its bytes are taken as they are. */
    bool ascii = encoding && strcmp(encoding, "SQL_ASCII") == 0;
    if (PQsetClientEncoding(conn, ascii ? "SQL_ASCII" : "UTF8") != 0)
        return error_set(err, ERROR_UNREACHABLE, "database: %s", PQerrorMessage(conn));
    return run(conn, "begin", err) && run(conn, "commit", err);
}

PGconn *command_connect(const char *database, const char *command, struct error *err)
{
    char name[64];
    snprintf(name, sizeof name, "pgcourier/%s", command);
    /* Before dbname, so that the user's own settings win. A server that accepts and never answers would hold us for
     * ever, and `run` has its signals blocked by then. */
    const char *const keywords[] = {"fallback_application_name", "connect_timeout", "dbname", NULL};
    const char *const values[] = {name, getenv("PGCONNECT_TIMEOUT") ? "" : CONNECT_TIMEOUT_S, database, NULL};
    PGconn *conn = PQconnectdbParams(keywords, values, 1);
    if (!conn || PQstatus(conn) != CONNECTION_OK) {
        error_set(err, conn ? failed_connection_kind(conn) : ERROR_RESOURCE, "database: %s",
                  conn ? PQerrorMessage(conn) : "out of memory");
        PQfinish(conn);
        return NULL;
    }
    if (prepare_session(conn, err))
        return conn;
    PQfinish(conn);
    return NULL;
}
