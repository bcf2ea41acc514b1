/* ordering/result.h -- values of a binary result. */
#ifndef ORDERING_RESULT_H
#define ORDERING_RESULT_H

#include "relay/base/span.h"

#include <endian.h>
#include <libpq-fe.h>
#include <string.h>

/* False, and *ret as it was, when it is null or no bigint. */
static inline bool result_bigint(const PGresult *res, int row, int column, int64_t *ret)
{
    if (PQgetisnull(res, row, column) || PQgetlength(res, row, column) != 8)
        return false;
    uint64_t big;
    memcpy(&big, PQgetvalue(res, row, column), sizeof big);
    *ret = (int64_t)be64toh(big);
    return true;
}

/* False as well when it is null. */
static inline bool result_bool(const PGresult *res, int row, int column)
{
    return PQgetlength(res, row, column) == 1 && *PQgetvalue(res, row, column) != 0;
}

/* Borrowed from the result; absent when it is null. */
static inline struct span result_span(const PGresult *res, int row, int column)
{
    if (PQgetisnull(res, row, column))
        return (struct span){NULL, 0};
    return (struct span){PQgetvalue(res, row, column), (size_t)PQgetlength(res, row, column)};
}

#endif
