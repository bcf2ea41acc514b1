/* tests/unit/stage/result_stage.h -- results built in memory, as libpq returns them from a server: in binary. */
#ifndef TESTS_UNIT_RESULT_STAGE_H
#define TESTS_UNIT_RESULT_STAGE_H

#include <check.h>
#include <endian.h>
#include <libpq-fe.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define ALL_COLUMNS_MAX 24

static inline PGresult *result_of(int columns)
{
    static PGresAttDesc attributes[ALL_COLUMNS_MAX];
    static char name[] = "c";
    for (int i = 0; i < columns; i++)
        attributes[i] = (PGresAttDesc){.name = name, .format = 1};
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert_int_eq(PQsetResultAttrs(res, columns, attributes), 1);
    return res;
}

static inline void set_text(PGresult *res, int row, int column, const char *text)
{
    char copy[64];
    snprintf(copy, sizeof copy, "%s", text ? text : "");
    ck_assert_int_eq(PQsetvalue(res, row, column, copy, text ? (int)strlen(text) : -1), 1);
}

static inline void set_bigint(PGresult *res, int row, int column, int64_t value)
{
    uint64_t big = htobe64((uint64_t)value);
    ck_assert_int_eq(PQsetvalue(res, row, column, (char *)&big, sizeof big), 1);
}

static inline void set_int(PGresult *res, int row, int column, int32_t value)
{
    uint32_t big = htobe32((uint32_t)value);
    ck_assert_int_eq(PQsetvalue(res, row, column, (char *)&big, sizeof big), 1);
}

#endif
