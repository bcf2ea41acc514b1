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

PGconn *session_open(const char *conninfo, const char *sql)
{
    PGconn *conn = PQconnectdb(conninfo);
    if (PQstatus(conn) != CONNECTION_OK)
        session_fail("connect", PQerrorMessage(conn));
    PGresult *res = PQprepare(conn, "floor", sql, 0, NULL);
    if (PQresultStatus(res) != PGRES_COMMAND_OK)
        session_fail("prepare", PQresultErrorMessage(res));
    PQclear(res);
    return conn;
}

PGresult *session_run(PGconn *conn, int count, const char *const *values)
{
    PGresult *res = PQexecPrepared(conn, "floor", count, values, NULL, NULL, 1);
    ExecStatusType status = PQresultStatus(res);
    if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
        session_fail("execute", PQresultErrorMessage(res));
    return res;
}

int64_t session_bigint(const PGresult *res, int column)
{
    uint64_t big;
    if (PQntuples(res) != 1 || PQgetlength(res, 0, column) != sizeof big)
        session_fail("result", "one row with a bigint was due");
    memcpy(&big, PQgetvalue(res, 0, column), sizeof big);
    return (int64_t)be64toh(big);
}
