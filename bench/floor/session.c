#include "bench/floor/session.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void session_fail(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

PGconn *session_connect(const char *conninfo)
{
    PGconn *conn = PQconnectdb(conninfo);
    if (PQstatus(conn) != CONNECTION_OK)
        session_fail("connect", PQerrorMessage(conn));
    return conn;
}

void session_prepare(PGconn *conn, const char *name, const char *sql)
{
    PGresult *res = PQprepare(conn, name, sql, 0, NULL);
    if (PQresultStatus(res) != PGRES_COMMAND_OK)
        session_fail("prepare", PQresultErrorMessage(res));
    PQclear(res);
}

PGconn *session_open(const char *conninfo, const char *sql)
{
    PGconn *conn = session_connect(conninfo);
    session_prepare(conn, "floor", sql);
    return conn;
}

static PGresult *checked(PGresult *res)
{
    ExecStatusType status = PQresultStatus(res);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        session_fail("execute", PQresultErrorMessage(res));
    return res;
}

PGresult *session_run(PGconn *conn, int count, const char *const *values)
{
    return checked(PQexecPrepared(conn, "floor", count, values, NULL, NULL, 1));
}

PGresult *session_run_text(PGconn *conn, const char *name, int count, const char *const *values)
{
    return checked(PQexecPrepared(conn, name, count, values, NULL, NULL, 0));
}

int64_t session_bigint(const PGresult *res, int column)
{
    uint64_t big;
    if (PQntuples(res) != 1 || PQgetlength(res, 0, column) != sizeof big)
        session_fail("result", "one row with a bigint was due");
    memcpy(&big, PQgetvalue(res, 0, column), sizeof big);
    return (int64_t)be64toh(big);
}
