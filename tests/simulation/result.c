#include "tests/simulation/result.h"

#include "tests/simulation/world.h"

#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>

struct cell {
    const char *data; /* NULL: null */
    int size;
    uint64_t number;
};

struct pg_result {
    ExecStatusType status;
    int rows, columns;
    const char *sqlstate;
    struct cell cells[];
};

static int64_t unread;

PGresult *result_new(ExecStatusType status, int rows, int columns)
{
    PGresult *res = arena_alloc(sim.arena, sizeof *res + (size_t)(rows * columns) * sizeof(struct cell));
    res->status = status;
    res->rows = rows;
    res->columns = columns;
    unread++;
    return res;
}

PGresult *result_error(const char *sqlstate)
{
    PGresult *res = result_new(PGRES_FATAL_ERROR, 0, 0);
    res->sqlstate = sqlstate;
    return res;
}

static struct cell *cell_at(const PGresult *res, int row, int column)
{
    assert(row >= 0 && row < res->rows && column >= 0 && column < res->columns);
    return (struct cell *)&res->cells[row * res->columns + column];
}

void result_bigint(PGresult *res, int row, int column, int64_t value)
{
    struct cell *cell = cell_at(res, row, column);
    cell->number = htobe64((uint64_t)value);
    cell->data = (const char *)&cell->number;
    cell->size = 8;
}

void result_bool(PGresult *res, int row, int column, bool value)
{
    struct cell *cell = cell_at(res, row, column);
    cell->number = value; /* as long as the machine puts the low byte first */
    cell->data = (const char *)&cell->number;
    cell->size = 1;
}

void result_int(PGresult *res, int row, int column, int32_t value)
{
    struct cell *cell = cell_at(res, row, column);
    uint32_t big = htobe32((uint32_t)value);
    memcpy(&cell->number, &big, sizeof big);
    cell->data = (const char *)&cell->number;
    cell->size = 4;
}

void result_text(PGresult *res, int row, int column, const char *text, size_t size)
{
    struct cell *cell = cell_at(res, row, column);
    cell->data = arena_copy(sim.arena, (struct span){text, size}).data;
    cell->size = (int)size;
}

void result_key(PGresult *res, int row, int column, int64_t key)
{
    char text[KEY_TEXT_MAX];
    result_text(res, row, column, text, key_text(text, key));
}

void result_tid(PGresult *res, int row, int column, int64_t id)
{
    struct cell *cell = cell_at(res, row, column);
    cell->number = htobe64((uint64_t)id << 32 | 1 << 16);
    cell->data = (const char *)&cell->number;
    cell->size = 6;
}

const char *result_sqlstate(const PGresult *res)
{
    return res->sqlstate;
}

int64_t result_unread(void)
{
    return unread;
}

void result_forget_unread(void)
{
    unread = 0;
}

size_t key_text(char *ret, int64_t key)
{
    return (size_t)snprintf(ret, KEY_TEXT_MAX, "k%d", (int)key);
}

int64_t key_parse(const char *text, size_t size)
{
    int64_t key = 0;
    for (size_t i = 1; i < size && text[0] == 'k'; i++)
        key = key * 10 + text[i] - '0';
    return key;
}

/* ---- libpq's ---- */

ExecStatusType PQresultStatus(const PGresult *res)
{
    return res->status;
}

int PQntuples(const PGresult *res)
{
    return res->rows;
}

int PQnfields(const PGresult *res)
{
    return res->columns;
}

int PQgetisnull(const PGresult *res, int row, int column)
{
    return cell_at(res, row, column)->data == NULL;
}

char *PQgetvalue(const PGresult *res, int row, int column)
{
    static char empty[] = "";
    const struct cell *cell = cell_at(res, row, column);
    return cell->data ? (char *)cell->data : empty;
}

int PQgetlength(const PGresult *res, int row, int column)
{
    return cell_at(res, row, column)->size;
}

void PQclear(PGresult *res)
{
    unread -= res != NULL;
}

void PQfinish(PGconn *conn)
{
    (void)conn; /* see start.c */
}
