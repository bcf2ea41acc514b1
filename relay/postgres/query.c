#include "relay/postgres/query.h"

#include "relay/base/clock.h"
#include "relay/postgres/sqlstate.h"
#include "sql_text.h"

#include <errno.h>
#include <libpq-events.h>
#include <poll.h>
#include <pthread.h>
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
    /* Our functions begin with their names, and what they do not find was named by the command. */
    bool named = strncmp(message, what, strlen(what)) == 0 && message[strlen(what)] == ':';
    bool unknown = named && code && strcmp(code, "42704") == 0;
    return error_set(err, unknown ? ERROR_USAGE : sqlstate_rule(code)->kind, "%s%s%s%s%s%s%s%s", named ? "" : what,
                     named ? "" : ": ", message, detail ? "; " : "", detail ? detail : "", hint ? "; " : "",
                     hint ? hint : "", schema_remedy(code, message));
}

/* ---- the path of a session that a pooler shares ---- */

/* Whose data with a connection is the mark that it is shared. */
static int keep_mark(PGEventId event, void *info, void *unused)
{
    (void)event, (void)info, (void)unused;
    return 1;
}

bool query_share(PGconn *conn)
{
    static char mark;
    return PQregisterEventProc(conn, keep_mark, "shared", NULL) && PQsetInstanceData(conn, keep_mark, &mark);
}

/* What comes next is the first of its transaction, in such a session. */
static bool wants_path(const PGconn *conn)
{
    return PQinstanceData(conn, keep_mark) && PQtransactionStatus(conn) == PQTRANS_IDLE;
}

/* In one round trip, and one transaction. As PQsendQueryParams(), whose message says why not. */
static int send_statement(PGconn *conn, const char *sql, int count, const char *const *params)
{
    static const char *const for_transaction[] = {"true"};
    if (!wants_path(conn))
        return PQsendQueryParams(conn, sql, count, NULL, params, NULL, NULL, 0);
    return PQenterPipelineMode(conn) == 1 &&
           PQsendQueryParams(conn, sql_session_path, 1, NULL, for_transaction, NULL, NULL, 0) == 1 &&
           PQsendQueryParams(conn, sql, count, NULL, params, NULL, NULL, 0) == 1 && PQpipelineSync(conn) == 1;
}

/* ---- in time, or until told to stop ---- */

enum answer { ANSWERED, BROKEN, LATE, CANNOT_WAIT };

/* One statement that was sent. */
struct question {
    const struct asker *asker;
    instant_us deadline;
    int stop_fd; /* -1: it need not be looked at any more */
    bool cancelled;
};

static void *send_cancel(void *handle)
{
    char why[256];
    PQcancel(handle, why, sizeof why); /* if that fails the statement goes on to its end */
    PQfreeCancel(handle);
    return NULL;
}

/* libpq waits until the server has hung up, and with a network that is cut that is for as long as TCP tries. */
static void cancel(struct question *question)
{
    pthread_t thread;
    PGcancel *handle = PQgetCancel(question->asker->conn);
    question->stop_fd = -1;
    question->cancelled = true;
    question->deadline = clock_now() + QUERY_CANCEL_S * SECOND_US;
    if (handle && pthread_create(&thread, NULL, send_cancel, handle) == 0)
        pthread_detach(thread);
    else
        PQfreeCancel(handle);
}

static int wait_ms(const struct question *question, instant_us now)
{
    return question->deadline == INSTANT_NEVER ? -1 : (int)((question->deadline - now) / MS_US + 1);
}

static enum answer await(struct question *question)
{
    PGconn *conn = question->asker->conn;
    while (PQisBusy(conn)) {
        instant_us now = clock_now();
        struct pollfd p[] = {{.fd = PQsocket(conn), .events = POLLIN}, {.fd = question->stop_fd, .events = POLLIN}};
        int n = now < question->deadline ? poll(p, 2, wait_ms(question, now)) : 0;
        if (n < 0 && errno != EINTR)
            return CANNOT_WAIT;
        if (n == 0)
            return LATE;
        if (n > 0 && p[0].revents && PQconsumeInput(conn) == 0)
            return BROKEN;
        if (n > 0 && p[1].revents && question->stop_fd >= 0)
            cancel(question);
    }
    return ANSWERED;
}

/* The end of what was sent as one. */
static bool is_end(PGconn *conn, PGresult *result)
{
    if (PQpipelineStatus(conn) == PQ_PIPELINE_OFF || (!result && PQstatus(conn) != CONNECTION_OK))
        return !result;
    return result && PQresultStatus(result) == PGRES_PIPELINE_SYNC;
}

/* The last result, as PQexec() gives it, or the first failure. NULL where there is none; *ret tells why. */
static PGresult *last_result(struct question *question, enum answer *ret)
{
    PGconn *conn = question->asker->conn;
    PGresult *last = NULL, *result = NULL;
    while ((*ret = await(question)) == ANSWERED && !is_end(conn, result = PQgetResult(conn))) {
        bool counts = result && (!last || succeeded(last));
        PQclear(counts ? last : result);
        last = counts ? result : last;
    }
    if (*ret == ANSWERED) {
        PQclear(result);
        PQexitPipelineMode(conn);
    }
    bool usable = *ret == ANSWERED || (*ret == BROKEN && !succeeded(last)); /* what it said before it hung up */
    if (usable)
        return last;
    PQclear(last);
    return NULL;
}

static bool says_cancelled(const PGresult *result)
{
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return code && strcmp(code, "57014") == 0;
}

static void say_why(const struct question *question, const PGresult *result, enum answer answer, struct error *err)
{
    const char *what = question->asker->what;
    if (question->cancelled && answer == LATE)
        error_set(err, ERROR_CONFLICT, "%s: stopped, and the database has not answered to that", what);
    else if (question->cancelled && says_cancelled(result))
        error_set(err, ERROR_CONFLICT, "%s: stopped", what);
    else if (answer == LATE)
        error_set(err, ERROR_TIMEOUT, "%s: the database gave no answer within %d s", what,
                  (int)(question->asker->limit_us / SECOND_US));
    else if (answer == CANNOT_WAIT)
        error_set(err, ERROR_RESOURCE, "%s: poll: %s", what, strerror(errno));
    else
        failed(question->asker->conn, result, what, err);
}

static bool says_not_found(const PGresult *result)
{
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return code && (strcmp(code, "42883") == 0 || strcmp(code, "42P01") == 0 || strcmp(code, "42704") == 0);
}

static void say_where(const PGresult *result, int64_t *ret)
{
    const char *position = PQresultErrorField(result, PG_DIAG_STATEMENT_POSITION);
    bool inside = PQresultErrorField(result, PG_DIAG_INTERNAL_QUERY) != NULL;
    *ret = !says_not_found(result) ? 0 : position ? strtoll(position, NULL, 10) : inside ? -1 : 0;
}

/* libpq's own waits have no end, and a connection whose sending failed is waited on for what the server has to say. */
static PGresult *answer_to(const struct asker *asker, int sent, struct error *err)
{
    enum answer answer = BROKEN;
    struct question question = {.asker = asker,
                                .deadline = asker->limit_us > 0 ? clock_now() + asker->limit_us : INSTANT_NEVER,
                                .stop_fd = asker->stop_fd};
    PGresult *result = sent == 1 ? last_result(&question, &answer) : NULL;
    if (succeeded(result))
        return result;
    say_why(&question, result, answer, err);
    if (asker->ret_position)
        say_where(result, asker->ret_position);
    PQclear(result);
    return NULL;
}

static struct asker in_time(PGconn *conn, const char *what)
{
    return (struct asker){.conn = conn, .what = what, .stop_fd = -1, .limit_us = QUERY_ANSWER_S * SECOND_US};
}

PGresult *query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                        struct error *err)
{
    struct asker asker = in_time(conn, what);
    return answer_to(&asker, send_statement(conn, sql, count, params), err);
}

static bool run(const struct asker *asker, const char *sql, struct error *err)
{
    PGresult *result = answer_to(asker, PQsendQuery(asker->conn, sql), err);
    bool ok = result != NULL;
    PQclear(result);
    return ok;
}

static bool script(const struct asker *asker, const char *sql, struct error *err)
{
    bool wanted = wants_path(asker->conn);
    if (!run(asker, sql, err))
        return false;
    bool begun = wanted && PQtransactionStatus(asker->conn) == PQTRANS_INTRANS;
    return !begun || run(asker, sql_session_path_begun, err);
}

bool query_script_in_time(PGconn *conn, const char *what, const char *sql, struct error *err)
{
    struct asker asker = in_time(conn, what);
    return script(&asker, sql, err);
}

static bool may_ask(const struct asker *asker, struct error *err)
{
    struct pollfd p = {.fd = asker->stop_fd, .events = POLLIN};
    return asker->stop_fd < 0 || poll(&p, 1, 0) == 0 || error_set(err, ERROR_CONFLICT, "%s: stopped", asker->what);
}

PGresult *query_or_cancel(const struct asker *asker, const char *sql, int count, const char *const *params,
                          struct error *err)
{
    if (!may_ask(asker, err))
        return NULL;
    return answer_to(asker, send_statement(asker->conn, sql, count, params), err);
}

bool query_script_or_cancel(const struct asker *asker, const char *sql, struct error *err)
{
    return may_ask(asker, err) && script(asker, sql, err);
}

/* ---- however long it takes ---- */

static struct asker at_leisure(PGconn *conn, const char *what)
{
    return (struct asker){.conn = conn, .what = what, .stop_fd = -1};
}

PGresult *query(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                struct error *err)
{
    struct asker asker = at_leisure(conn, what);
    return wants_path(conn)
               ? answer_to(&asker, send_statement(conn, sql, count, params), err)
               : query_result(conn, what, PQexecParams(conn, sql, count, NULL, params, NULL, NULL, 0), err);
}

PGresult *query_result(PGconn *conn, const char *what, PGresult *result, struct error *err)
{
    if (succeeded(result))
        return result;
    failed(conn, result, what, err);
    PQclear(result);
    return NULL;
}

bool query_is_blocked(const PGresult *result)
{
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return code && sqlstate_rule(code)->refusal == REFUSAL_BY_LOCK;
}

bool query_script(PGconn *conn, const char *what, const char *sql, struct error *err)
{
    struct asker asker = at_leisure(conn, what);
    if (wants_path(conn))
        return script(&asker, sql, err);
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
