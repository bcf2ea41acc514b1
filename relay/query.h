/* relay/query.h -- statements that wait for their answer: start-up checks and one-shot commands. The relay's loop
 * never calls these, but a new configuration is checked while it stands still. */
#ifndef RELAY_QUERY_H
#define RELAY_QUERY_H

#include "relay/base/error.h"

#include <libpq-fe.h>
#include <stdint.h>

/* Runs one statement with text parameters (NULL is SQL NULL); `what` starts the message of a failure. The result, of
 * rows or of a command, is the caller's: PQclear() it. NULL and *err on failure. */
PGresult *query(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                struct error *err) MUST_CHECK;

/* Runs any number of statements, without parameters and without results. */
bool query_script(PGconn *conn, const char *what, const char *sql, struct error *err) MUST_CHECK;

/* The same, but give up when there is no whole answer within QUERY_ANSWER_S seconds; the connection is then good for
 * PQfinish() only. For all that `run` does: its signals are blocked, and there may be claims that wait for it. */
#define QUERY_ANSWER_S 30

PGresult *query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                        struct error *err) MUST_CHECK;
bool query_script_in_time(PGconn *conn, const char *what, const char *sql, struct error *err) MUST_CHECK;

/* The same however long it takes, but when `stop_fd` becomes readable the server is asked to cancel: then most likely
 * NULL, and *err is what the server says to that. Messages start with "database". */
PGresult *query_or_cancel(PGconn *conn, int stop_fd, const char *sql, int count, const char *const *params,
                          struct error *err) MUST_CHECK;

/* Values of a result; NULL for SQL NULL, and what cannot be read is 0. */
const char *query_text(const PGresult *result, int row, int column);
bool query_bool(const PGresult *result, int row, int column);
int64_t query_int(const PGresult *result, int row, int column);

#endif
