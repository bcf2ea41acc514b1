#include "relay/query.h"

#include "relay/sqlstate.h"

#include <stdlib.h>
#include <string.h>

static bool succeeded(const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    return status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
}

/* libpq ends its own messages with a newline. */
static int line_length(const char *text)
{
    size_t n = strlen(text);
    while (n > 0 && text[n - 1] == '\n')
        n--;
    return (int)n;
}

/* A database that was never migrated, told from a table or function of the user's that is missing. */
static const char *schema_remedy(const char *code, const char *message)
{
    bool missing = code && (strcmp(code, "3F000") == 0 || strcmp(code, "42P01") == 0 || strcmp(code, "42883") == 0);
    return missing && strstr(message, "outbox") ? "; run pgcourier migrate" : "";
}

/* Message, detail and hint, but never the context or the statement, which may quote a row. */
static bool failed(PGconn *conn, const PGresult *result, const char *what, struct error *err)
{
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char *message = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (!message) {
        message = PQerrorMessage(conn);
        return error_set(err, sqlstate_rule(code)->kind, "%s: %.*s", what, line_length(message), message);
    }
    const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
    const char *hint = PQresultErrorField(result, PG_DIAG_MESSAGE_HINT);
    return error_set(err, sqlstate_rule(code)->kind, "%s: %s%s%s%s%s%s", what, message, detail ? "; " : "",
                     detail ? detail : "", hint ? "; " : "", hint ? hint : "", schema_remedy(code, message));
}

PGresult *query(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                struct error *err)
{
    PGresult *result = PQexecParams(conn, sql, count, NULL, params, NULL, NULL, 0);
    if (succeeded(result))
        return result;
    failed(conn, result, what, err);
    PQclear(result);
    return NULL;
}

bool query_script(PGconn *conn, const char *what, const char *sql, struct error *err)
{
    PGresult *result = PQexec(conn, sql);
    bool ok = succeeded(result) || failed(conn, result, what, err);
    PQclear(result);
    return ok;
}

const char *query_text(const PGresult *result, int row, int column)
{
    return PQgetisnull(result, row, column) ? NULL : PQgetvalue(result, row, column);
}

bool query_bool(const PGresult *result, int row, int column)
{
    return PQgetvalue(result, row, column)[0] == 't';
}

int64_t query_int(const PGresult *result, int row, int column)
{
    return strtoll(PQgetvalue(result, row, column), NULL, 10);
}
