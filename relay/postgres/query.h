/* relay/postgres/query.h -- statements that wait for their answer: start-up checks and one-shot commands. The relay's
 * loop never calls these, but a new configuration is checked while it stands still. */
#pragma once

#include "relay/base/error.h"

#include <libpq-fe.h>
#include <stdint.h>

/* The session is shared by a pooler, and so nothing is set for longer than a transaction: from now on each transaction
 * has our search_path (sql/session/session_path.sql), in the round trip of its first statement, or behind the script
 * that begins it. A script does that and no more, or is run inside of one. False: out of memory. */
bool query_share(PGconn *conn) MUST_CHECK;

/* Runs one statement with text parameters (NULL is SQL NULL); `what` starts the message of a failure,
 * which is ERROR_USAGE when a function of that name did not find something (42704). The result, of
 * rows or of a command, is the caller's: PQclear() it. NULL and *err on failure. */
PGresult *query(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                struct error *err) MUST_CHECK;

/* The same of what libpq has returned for a statement; freed where it is NULL. */
PGresult *query_result(PGconn *conn, const char *what, PGresult *result, struct error *err) MUST_CHECK;

/* It failed as somebody else held a lock that it needs, and may pass when that is gone. */
bool query_is_blocked(const PGresult *result);

/* Runs any number of statements, without parameters and without results. */
bool query_script(PGconn *conn, const char *what, const char *sql, struct error *err) MUST_CHECK;

/* The same, but give up when there is no whole answer within QUERY_ANSWER_S seconds; the connection is then good for
 * PQfinish() only. For all that `run` does: its signals are blocked, and there may be claims that wait for it. */
#define QUERY_ANSWER_S 30

PGresult *query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                        struct error *err) MUST_CHECK;
bool query_script_in_time(PGconn *conn, const char *what, const char *sql, struct error *err) MUST_CHECK;

/* Who asks what may take long, and what makes it give up. */
struct asker {
    PGconn *conn;
    const char *what;      /* the messages of its failures start with it */
    int stop_fd;           /* readable: give up; -1: there is none */
    int64_t limit_us;      /* give up when there is no whole answer so long after; 0: however long it takes */
    int64_t *ret_position; /* of a name in the statement that was not found, in characters from 1; 0: it failed
                            * otherwise; less: a name in a function that it calls. NULL: nobody asks */
};

/* The same, but when `stop_fd` is readable nothing is asked, and when it becomes so the server is asked to cancel, and
 * most likely does: NULL and ERROR_CONFLICT. Without an answer to that within QUERY_CANCEL_S seconds it is the same,
 * but the connection is good for PQfinish() only, as it is after `limit_us`. */
#define QUERY_CANCEL_S 1

PGresult *query_or_cancel(const struct asker *asker, const char *sql, int count, const char *const *params,
                          struct error *err) MUST_CHECK;
bool query_script_or_cancel(const struct asker *asker, const char *sql, struct error *err) MUST_CHECK;

/* Values of a result; NULL for SQL NULL, and what cannot be read is 0. */
const char *query_text(const PGresult *result, int row, int column);
bool query_bool(const PGresult *result, int row, int column);
int64_t query_int(const PGresult *result, int row, int column);
