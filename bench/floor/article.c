/* The worker loop that this system grew out of: article CONNINFO LOCK READ DELETE CONNECTIONS SECONDS runs it on so
 * many connections and prints `EVENTS SECONDS`. One event a transaction: LOCK finds a key and locks it, READ is given
 * the key and finds the event, DELETE is given its id. Nothing is delivered. Each statement is prepared and waits for
 * its result, as in a worker that uses a driver. */
#include "bench/floor/session.h"
#include "relay/base/arena.h"
#include "relay/base/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECTIONS_MAX 64

struct worker {
    pthread_t thread;
    PGconn *conn;
    instant_us end_at;
    int64_t events;
};

/* An event was found and deleted. */
static bool work(PGconn *conn)
{
    PGresult *locked = session_run_text(conn, "lock", 0, NULL);
    bool found = PQntuples(locked) == 1;
    if (found) {
        const char *key[] = {PQgetvalue(locked, 0, 0)};
        PGresult *read = session_run_text(conn, "read", 1, key);
        found = PQntuples(read) == 1;
        if (found) {
            const char *id[] = {PQgetvalue(read, 0, 0)};
            PQclear(session_run_text(conn, "delete", 1, id));
        }
        PQclear(read);
    }
    PQclear(locked);
    return found;
}

static void *loop(void *data)
{
    struct worker *worker = data;
    while (clock_now() < worker->end_at) {
        PQclear(session_run_text(worker->conn, "begin", 0, NULL));
        bool found = work(worker->conn);
        PQclear(session_run_text(worker->conn, "commit", 0, NULL));
        worker->events += found;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    long connections = argc == 7 ? strtol(argv[5], NULL, 10) : 0;
    double seconds = argc == 7 ? strtod(argv[6], NULL) : 0;
    if (connections < 1 || connections > CONNECTIONS_MAX || seconds <= 0)
        session_fail("usage", "article CONNINFO LOCK READ DELETE CONNECTIONS SECONDS");
    struct worker *workers = memory_array((size_t)connections, sizeof *workers);
    for (long i = 0; i < connections; i++) {
        workers[i].conn = session_connect(argv[1]);
        session_prepare(workers[i].conn, "begin", "begin isolation level read committed");
        session_prepare(workers[i].conn, "lock", argv[2]);
        session_prepare(workers[i].conn, "read", argv[3]);
        session_prepare(workers[i].conn, "delete", argv[4]);
        session_prepare(workers[i].conn, "commit", "commit");
    }
    instant_us begun = clock_now();
    for (long i = 0; i < connections; i++) {
        workers[i].end_at = begun + (instant_us)(seconds * SECOND_US);
        if (pthread_create(&workers[i].thread, NULL, loop, &workers[i]) != 0)
            session_fail("pthread_create", "no thread");
    }
    int64_t events = 0;
    for (long i = 0; i < connections; i++) {
        pthread_join(workers[i].thread, NULL);
        events += workers[i].events;
    }
    printf("%" PRId64 " %.6f\n", events, (double)(clock_now() - begun) / SECOND_US);
    for (long i = 0; i < connections; i++)
        PQfinish(workers[i].conn);
    free(workers);
    return 0;
}
