#include "relay/bench/bench.h"

#include "relay/base/statement.h"
#include "relay/postgres/query.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <unistd.h>

bool bench_is_stopped(struct bench *bench, struct error *err)
{
    struct signalfd_siginfo info;
    while (read(bench->signal_fd, &info, sizeof info) == sizeof info)
        bench->stop_signalled = true;
    if (bench->stop_signalled)
        error_set(err, ERROR_TIMEOUT, "bench: stopped by a signal");
    return bench->stop_signalled;
}

char *bench_render(const char *template, const char *schema)
{
    struct error err;
    char *sql = sql_render(template, (const struct sql_variable[]){{"state", schema}, {NULL, NULL}}, &err);
    assert(sql && "tests/integration/schema/test_statements.py prepares all of them");
    return sql;
}

bool bench_check_count(const struct bench *bench, const char *who, int64_t drained, struct error *err)
{
    return drained == bench->options.events ||
           error_set(err, ERROR_INTERNAL, "bench: the %s drained %" PRId64 " of %" PRId64 " events", who, drained,
                     bench->options.events);
}

struct db *bench_connect(struct bench *bench)
{
    const struct config *config = bench->config;
    return db_new(&(struct db_options){.conninfo = config->database,
                                       .application_name = "pgcourier/bench",
                                       .prepared = config->prepared,
                                       .statement_timeout_us = config->statement_timeout_us,
                                       .lock_timeout_us = db_lock_timeout_us(config->statement_timeout_us),
                                       .read_write = true,
                                       .seed = rng_next(&bench->rng)});
}

PGresult *bench_query(struct bench *bench, const char *template, int count, const char *const *params,
                      struct error *err)
{
    char *sql = bench_render(template, bench->schema);
    const struct asker asker = {.conn = bench->conn, .what = "database", .stop_fd = bench->signal_fd};
    PGresult *result = query_or_cancel(&asker, sql, count, params, err);
    free(sql);
    if (!bench_is_stopped(bench, err))
        return result;
    PQclear(result);
    return NULL;
}

bool bench_run(struct bench *bench, const char *template, int count, const char *const *params, struct error *err)
{
    PGresult *result = bench_query(bench, template, count, params, err);
    PQclear(result);
    return result != NULL;
}
