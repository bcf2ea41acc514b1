#include "relay/bench/bench_floor.h"

#include "relay/base/arena.h"
#include "relay/base/pollset.h"
#include "relay/base/statement.h"
#include "relay/postgres/db.h"
#include "sql_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define WAIT_MAX_US SECOND_US
#define ROWS_MAX 1000
#define RESULT_BYTES_MAX ((int64_t)64 << 20)

struct drainer {
    struct db *db;
    bool up;  /* and its session is set up */
    int rows; /* of the batch under way */
};

struct floor {
    struct bench *bench;
    struct drainer *drainers;
    size_t count, up, done;
    struct pollset *ps;
    char *sql;
    int64_t rows;
    instant_us emptied_at; /* when a batch was deleted last */
};

int64_t bench_floor_rows(int64_t payload_bytes)
{
    int64_t rows = RESULT_BYTES_MAX / payload_bytes;
    return rows < 1 ? 1 : rows > ROWS_MAX ? ROWS_MAX : rows;
}

static char *render(const struct bench *bench)
{
    struct error err;
    char rows[24];
    snprintf(rows, sizeof rows, "%" PRId64, bench_floor_rows(bench->options.payload_bytes));
    char *sql = sql_render(sql_bench_floor,
                           (const struct sql_variable[]){{"state", bench->schema}, {"rows", rows}, {NULL, NULL}}, &err);
    assert(sql && "tests/integration/schema/test_statements.py prepares it");
    return sql;
}

static bool send_batch(const struct floor *floor, struct drainer *drainer, struct error *err)
{
    drainer->rows = 0;
    return db_send_sql(drainer->db, floor->sql, err) && db_end_round(drainer->db, err);
}

static bool take_result(struct drainer *drainer, PGresult *res, struct error *err)
{
    bool ok = PQresultStatus(res) == PGRES_TUPLES_OK;
    if (ok)
        drainer->rows = PQntuples(res);
    else
        db_result_rule(res, err);
    PQclear(res);
    return ok || error_prefix(err, "bench: the floor");
}

static bool set_up(const struct drainer *drainer, struct error *err)
{
    return db_send_sql(drainer->db, sql_bench_isolation, err) && db_end_round(drainer->db, err);
}

static bool end_round(struct floor *floor, struct drainer *drainer, instant_us now, struct error *err)
{
    if (!drainer->up) {
        drainer->up = true;
        floor->up++;
        return true;
    }
    if (drainer->rows == 0) {
        floor->done++;
        return true;
    }
    floor->rows += drainer->rows;
    floor->emptied_at = now;
    return send_batch(floor, drainer, err);
}

static bool progress(struct floor *floor, struct drainer *drainer, instant_us now, struct error *err)
{
    struct db_result result;
    bool ok = true;
    while (ok) {
        switch (db_progress(drainer->db, floor->ps, now, &result, err)) {
        case DB_NOTHING:
            return true;
        case DB_UP:
            ok = set_up(drainer, err);
            break;
        case DB_RESULT:
            ok = take_result(drainer, result.res, err);
            break;
        case DB_ROUND_END:
            ok = end_round(floor, drainer, now, err);
            break;
        case DB_DOWN:
            return error_prefix(err, "bench: the floor");
        }
    }
    return false;
}

static bool wait(struct floor *floor, instant_us *now, struct error *err)
{
    pollset_clear(floor->ps);
    pollset_add(floor->ps, floor->bench->signal_fd, POLLIN);
    pollset_deadline(floor->ps, *now + WAIT_MAX_US);
    for (size_t i = 0; i < floor->count; i++)
        db_prepare(floor->drainers[i].db, floor->ps);
    bool ok = pollset_wait(floor->ps, *now, err);
    *now = clock_now();
    return ok && !bench_is_stopped(floor->bench, err);
}

static bool turn(struct floor *floor, instant_us *now, struct error *err)
{
    bool ok = wait(floor, now, err);
    for (size_t i = 0; ok && i < floor->count; i++)
        ok = progress(floor, &floor->drainers[i], *now, err);
    return ok;
}

/* False when that fails, or a signal has asked to stop. */
static bool turn_until(struct floor *floor, const size_t *counted, instant_us *now, struct error *err)
{
    while (*counted < floor->count)
        if (!turn(floor, now, err))
            return false;
    return true;
}

static bool drain(struct floor *floor, double *ret_per_second, struct error *err)
{
    instant_us now = clock_now();
    bool ok = turn_until(floor, &floor->up, &now, err);
    instant_us begun = clock_now();
    for (size_t i = 0; ok && i < floor->count; i++)
        ok = send_batch(floor, &floor->drainers[i], err);
    if (!ok || !turn_until(floor, &floor->done, &now, err) ||
        !bench_check_count(floor->bench, "floor", floor->rows, err))
        return false;
    *ret_per_second = (double)floor->rows * SECOND_US / (double)(floor->emptied_at - begun);
    return true;
}

bool bench_floor(struct bench *bench, double *ret_per_second, struct error *err)
{
    struct floor floor = {.bench = bench,
                          .count = (size_t)bench->options.connections,
                          .drainers = memory_array((size_t)bench->options.connections, sizeof(struct drainer)),
                          .ps = pollset_new(),
                          .sql = render(bench)};
    for (size_t i = 0; i < floor.count; i++)
        floor.drainers[i].db = bench_connect(bench);
    bool ok = drain(&floor, ret_per_second, err);
    for (size_t i = 0; i < floor.count; i++)
        db_free(floor.drainers[i].db);
    pollset_free(floor.ps);
    free(floor.drainers);
    free(floor.sql);
    return ok;
}
