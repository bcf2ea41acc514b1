/* How fast can a table be emptied at all? drain CONNINFO SQL CONNECTIONS runs one prepared statement on so many
 * connections, each again and again until it returns no row, and prints `ROWS SECONDS`: from the first execution, when
 * all are connected, to the last result. Nothing is done with the rows. */
#include "bench/floor/session.h"
#include "relay/base/arena.h"
#include "relay/base/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CONNECTIONS_MAX 64

struct drainer {
    pthread_t thread;
    PGconn *conn;
    int64_t rows;
};

static void *drain(void *data)
{
    struct drainer *drainer = data;
    int rows;
    do {
        PGresult *res = session_run(drainer->conn, 0, NULL);
        rows = PQntuples(res);
        PQclear(res);
        drainer->rows += rows;
    } while (rows > 0);
    return NULL;
}

int main(int argc, char **argv)
{
    long connections = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    if (connections < 1 || connections > CONNECTIONS_MAX)
        session_fail("usage", "drain CONNINFO SQL CONNECTIONS");
    struct drainer *drainers = memory_array((size_t)connections, sizeof *drainers);
    for (long i = 0; i < connections; i++)
        drainers[i].conn = session_open(argv[1], argv[2]);
    instant_us begun = clock_now();
    for (long i = 0; i < connections; i++)
        if (pthread_create(&drainers[i].thread, NULL, drain, &drainers[i]) != 0)
            session_fail("pthread_create", "no thread");
    int64_t rows = 0;
    for (long i = 0; i < connections; i++) {
        pthread_join(drainers[i].thread, NULL);
        rows += drainers[i].rows;
    }
    printf("%" PRId64 " %.6f\n", rows, (double)(clock_now() - begun) / SECOND_US);
    for (long i = 0; i < connections; i++)
        PQfinish(drainers[i].conn);
    free(drainers);
    return 0;
}
