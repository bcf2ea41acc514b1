#include "bench/floor/drainers.h"

#include "bench/floor/session.h"
#include "relay/base/arena.h"

#include <pthread.h>
#include <stdlib.h>

#define CONNECTIONS_MAX 64

struct drainer {
    pthread_t thread;
    PGconn *conn;
    int64_t rows;
};

struct drainers {
    long count;
    struct drainer each[CONNECTIONS_MAX];
};

/* The rows that a statement took are those of its command tag: one that moves them elsewhere returns none. */
static int64_t rows_taken(PGresult *res)
{
    return strtoll(PQcmdTuples(res), NULL, 10);
}

static void *drain(void *data)
{
    struct drainer *drainer = data;
    int64_t rows;
    do {
        PGresult *res = session_run(drainer->conn, 0, NULL);
        rows = rows_taken(res);
        PQclear(res);
        drainer->rows += rows;
    } while (rows > 0);
    return NULL;
}

struct drainers *drainers_open(const char *conninfo, const char *sql, long connections)
{
    if (connections < 1 || connections > CONNECTIONS_MAX)
        session_fail("connections", "from 1 to 64");
    struct drainers *drainers = memory_new(sizeof *drainers);
    drainers->count = connections;
    for (long i = 0; i < connections; i++)
        drainers->each[i].conn = session_open(conninfo, sql);
    return drainers;
}

void drainers_start(struct drainers *drainers)
{
    for (long i = 0; i < drainers->count; i++)
        if (pthread_create(&drainers->each[i].thread, NULL, drain, &drainers->each[i]) != 0)
            session_fail("pthread_create", "no thread");
}

int64_t drainers_join(struct drainers *drainers)
{
    int64_t rows = 0;
    for (long i = 0; i < drainers->count; i++) {
        pthread_join(drainers->each[i].thread, NULL);
        rows += drainers->each[i].rows;
        PQfinish(drainers->each[i].conn);
    }
    free(drainers);
    return rows;
}
