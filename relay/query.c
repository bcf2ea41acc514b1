#include "relay/query.h"

#include "relay/base/clock.h"
#include "relay/sqlstate.h"

#include <errno.h>
#include <poll.h>
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
    /* Our functions begin with their names. */
    bool named = strncmp(message, what, strlen(what)) == 0 && message[strlen(what)] == ':';
    return error_set(err, sqlstate_rule(code)->kind, "%s%s%s%s%s%s%s%s", named ? "" : what, named ? "" : ": ", message,
                     detail ? "; " : "", detail ? detail : "", hint ? "; " : "", hint ? hint : "",
                     schema_remedy(code, message));
}

/* ---- in time ---- */

enum answer { ANSWERED, BROKEN, LATE, CANNOT_WAIT };

static enum answer await(PGconn *conn, instant_us deadline)
{
    while (PQisBusy(conn)) {
        instant_us now = clock_now();
        struct pollfd p = {.fd = PQsocket(conn), .events = POLLIN};
        int n = now < deadline ? poll(&p, 1, (int)((deadline - now) / MS_US + 1)) : 0;
        if (n < 0 && errno != EINTR)
            return CANNOT_WAIT;
        if (n == 0)
            return LATE;
        if (n > 0 && PQconsumeInput(conn) == 0)
            return BROKEN;
    }
    return ANSWERED;
}

/* The last result, as PQexec() gives it. NULL where there is none; *ret tells why. */
static PGresult *last_result(PGconn *conn, enum answer *ret)
{
    instant_us deadline = clock_now() + QUERY_ANSWER_S * SECOND_US;
    PGresult *last = NULL;
    for (PGresult *result; (*ret = await(conn, deadline)) == ANSWERED && (result = PQgetResult(conn));) {
        PQclear(last);
        last = result;
    }
    bool usable = *ret == ANSWERED || (*ret == BROKEN && !succeeded(last)); /* what it said before it hung up */
    if (usable)
        return last;
    PQclear(last);
    return NULL;
}

/* libpq's own waits have no end, and a connection whose sending failed is waited on for what the server has to say. */
static PGresult *answer_to(PGconn *conn, int sent, const char *what, struct error *err)
{
    enum answer answer = BROKEN;
    PGresult *result = sent == 1 ? last_result(conn, &answer) : NULL;
    if (succeeded(result))
        return result;
    if (answer == LATE)
        error_set(err, ERROR_TIMEOUT, "%s: the database gave no answer within %d s", what, QUERY_ANSWER_S);
    else if (answer == CANNOT_WAIT)
        error_set(err, ERROR_RESOURCE, "%s: poll: %s", what, strerror(errno));
    else
        failed(conn, result, what, err);
    PQclear(result);
    return NULL;
}

PGresult *query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                        struct error *err)
{
    return answer_to(conn, PQsendQueryParams(conn, sql, count, NULL, params, NULL, NULL, 0), what, err);
}

bool query_script_in_time(PGconn *conn, const char *what, const char *sql, struct error *err)
{
    PGresult *result = answer_to(conn, PQsendQuery(conn, sql), what, err);
    bool ok = result != NULL;
    PQclear(result);
    return ok;
}

/* ---- however long it takes ---- */

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

static void cancel(PGconn *conn)
{
    char why[256];
    PGcancel *handle = PQgetCancel(conn);
    PQcancel(handle, why, sizeof why); /* if that fails the statement goes on to its end */
    PQfreeCancel(handle);
}

static void await_or_cancel(PGconn *conn, int *stop_fd)
{
    bool waiting = true; /* else PQgetResult() says what is wrong */
    while (waiting && PQisBusy(conn)) {
        struct pollfd p[] = {{.fd = PQsocket(conn), .events = POLLIN}, {.fd = *stop_fd, .events = POLLIN}};
        int n = poll(p, 2, -1);
        waiting = n > 0 || errno == EINTR;
        if (n > 0 && p[1].revents) {
            cancel(conn);
            *stop_fd = -1;
        }
        if (n > 0 && p[0].revents)
            waiting = PQconsumeInput(conn) == 1;
    }
}

PGresult *query_or_cancel(PGconn *conn, int stop_fd, const char *sql, int count, const char *const *params,
                          struct error *err)
{
    PGresult *last = NULL;
    int sent = PQsendQueryParams(conn, sql, count, NULL, params, NULL, NULL, 0);
    for (PGresult *result = NULL; sent == 1; last = result) {
        await_or_cancel(conn, &stop_fd);
        result = PQgetResult(conn);
        if (!result)
            break;
        PQclear(last);
    }
    if (succeeded(last))
        return last;
    failed(conn, last, "database", err);
    PQclear(last);
    return NULL;
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
