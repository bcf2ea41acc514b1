/* The producers of a steady load.
 *
 *   insert CONNINFO INSERT THREADS RATE COUNT
 *
 * inserts COUNT events, RATE a second in all, evenly spaced over THREADS connections, one a transaction; INSERT is
 * given the connection's number, so that each can have keys of its own. Prints the rate that was reached. */
#include "bench/floor/session.h"
#include "relay/base/clock.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define THREADS_MAX 64

struct producer {
    pthread_t thread;
    PGconn *conn;
    long number;
    instant_us begin_at;
    double interval_us; /* between its own events */
    int64_t count;
};

static void wait_for(instant_us at)
{
    struct timespec to = {.tv_sec = at / SECOND_US, .tv_nsec = at % SECOND_US * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &to, NULL) != 0)
        ;
}

static void *produce(void *data)
{
    struct producer *producer = data;
    char number[24];
    snprintf(number, sizeof number, "%ld", producer->number);
    const char *values[] = {number};
    for (int64_t i = 0; i < producer->count; i++) {
        wait_for(producer->begin_at + (instant_us)((double)i * producer->interval_us));
        PQclear(session_run(producer->conn, 1, values));
    }
    return NULL;
}

static void run(struct producer *producers, long threads)
{
    for (long i = 0; i < threads; i++)
        if (pthread_create(&producers[i].thread, NULL, produce, &producers[i]) != 0)
            session_fail("pthread_create", "no thread");
    for (long i = 0; i < threads; i++)
        pthread_join(producers[i].thread, NULL);
}

int main(int argc, char **argv)
{
    long threads = argc == 6 ? strtol(argv[3], NULL, 10) : 0;
    double rate = threads ? strtod(argv[4], NULL) : 0;
    int64_t each = threads > 0 ? strtoll(argv[5], NULL, 10) / threads : 0;
    if (threads < 1 || threads > THREADS_MAX || rate <= 0 || each < 1)
        session_fail("usage", "insert CONNINFO INSERT THREADS RATE COUNT");
    struct producer producers[THREADS_MAX] = {0};
    double interval_us = (double)threads * SECOND_US / rate;
    for (long i = 0; i < threads; i++)
        producers[i] = (struct producer){
            .number = i, .interval_us = interval_us, .count = each, .conn = session_open(argv[1], argv[2])};
    instant_us begun = clock_now();
    for (long i = 0; i < threads; i++)
        producers[i].begin_at = begun + (instant_us)(interval_us * (double)i / (double)threads);
    run(producers, threads);
    printf("%.1f\n", (double)(each * threads) * SECOND_US / (double)(clock_now() - begun));
    for (long i = 0; i < threads; i++)
        PQfinish(producers[i].conn);
    return 0;
}
