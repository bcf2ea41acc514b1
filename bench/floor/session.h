/* bench/floor/session.h -- what the floor programs share: a connection with one prepared statement, and giving up.
 * A floor that cannot be measured has no use for going on, so every failure ends the program. */
#ifndef BENCH_FLOOR_SESSION_H
#define BENCH_FLOOR_SESSION_H

#include <libpq-fe.h>
#include <stdint.h>

/* Prints `what` and the reason, and exits with 1. */
_Noreturn void session_fail(const char *what, const char *why);

/* Never NULL. The caller's: PQfinish(). */
PGconn *session_connect(const char *conninfo);

void session_prepare(PGconn *conn, const char *name, const char *sql);

/* Connects and prepares `sql` as "floor"; never returns NULL. The caller's: PQfinish(). */
PGconn *session_open(const char *conninfo, const char *sql);

/* Runs the prepared statement, parameters as text and the result in binary, as the relay has them. Never NULL; the
 * caller's: PQclear(). */
PGresult *session_run(PGconn *conn, int count, const char *const *values);

/* The same for the statement `name`, with the result as text. */
PGresult *session_run_text(PGconn *conn, const char *name, int count, const char *const *values);

/* A bigint or timestamptz of row 0. */
int64_t session_bigint(const PGresult *res, int column);

#endif
