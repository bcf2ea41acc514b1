/* ordering/result.h -- values of a binary result. */
#ifndef ORDERING_RESULT_H
#define ORDERING_RESULT_H

#include "relay/base/span.h"

#include <libpq-fe.h>
#include <string.h>

/* False, and *ret as it was, when it is null or no integer. An id has the type that its column has. */
static inline bool result_bigint(const PGresult *res, int row, int column, int64_t *ret)
{
    int length = PQgetisnull(res, row, column) ? 0 : PQgetlength(res, row, column);
    if (length != 8 && length != 4 && length != 2)
        return false;
    const unsigned char *value = (const unsigned char *)PQgetvalue(res, row, column);
    int64_t id = value[0] < 128 ? 0 : -1;
    for (int i = 0; i < length; i++)
        id = (int64_t)((uint64_t)id << 8 | value[i]);
    *ret = id;
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
