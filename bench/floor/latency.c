/* How soon could an event be delivered by somebody who knew of its commit at once?
 *
 *   latency CONNINFO INSERT READ THREADS RATE COUNT DESTINATION
 *
 * inserts COUNT events, RATE a second in all, evenly spaced over THREADS connections; INSERT is given the connection's
 * number, so that each can have keys of its own. After each commit another connection reads the event by its id and the
 * thread delivers it, alone: `discard` does nothing, `file:PATH` appends a line and calls fdatasync, `redis:PORT` adds
 * to a stream and waits for the answer. Prints p50 and p99 in milliseconds, from the event's created_at to then, and
 * the rate that was reached. `none` inserts only: the producer of the relay's own runs. */
#include "bench/floor/session.h"
#include "relay/base/arena.h"
#include "relay/base/clock.h"

#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 64
#define EPOCH_2000_US (INT64_C(946684800) * SECOND_US)

enum insert_column { INSERT_ID, INSERT_CREATED_AT };
enum read_column { READ_PAYLOAD };

struct producer {
    pthread_t thread;
    PGconn *insert, *read; /* read: NULL when nothing is delivered */
    int file;              /* -1: none */
    redisContext *redis;   /* NULL: none */
    long number;
    instant_us begin_at;
    double interval_us; /* between its own events */
    int64_t count;
    int64_t *latencies_us;
};

static void wait_for(instant_us at)
{
    struct timespec to = {.tv_sec = at / SECOND_US, .tv_nsec = at % SECOND_US * 1000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &to, NULL) != 0)
        ;
}

static void deliver(const struct producer *producer, const PGresult *res)
{
    const char *payload = PQgetvalue(res, 0, READ_PAYLOAD);
    size_t size = (size_t)PQgetlength(res, 0, READ_PAYLOAD);
    if (producer->file >= 0 &&
        (write(producer->file, payload, size) != (ssize_t)size || fdatasync(producer->file) != 0))
        session_fail("file", "not written");
    if (!producer->redis)
        return;
    redisReply *reply = redisCommand(producer->redis, "XADD floor * payload %b", payload, size);
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        session_fail("redis", reply ? reply->str : producer->redis->errstr);
    freeReplyObject(reply);
}

static void *produce(void *data)
{
    struct producer *producer = data;
    char number[24];
    snprintf(number, sizeof number, "%ld", producer->number);
    const char *insert_values[] = {number};
    for (int64_t i = 0; i < producer->count; i++) {
        wait_for(producer->begin_at + (instant_us)((double)i * producer->interval_us));
        PGresult *inserted = session_run(producer->insert, 1, insert_values);
        int64_t created_at_us = session_bigint(inserted, INSERT_CREATED_AT) + EPOCH_2000_US;
        if (producer->read) {
            char id[24];
            snprintf(id, sizeof id, "%" PRId64, session_bigint(inserted, INSERT_ID));
            const char *values[] = {id};
            PGresult *read = session_run(producer->read, 1, values);
            deliver(producer, read);
            PQclear(read);
        }
        producer->latencies_us[i] = clock_wall_us() - created_at_us;
        PQclear(inserted);
    }
    return NULL;
}

static void open_destination(struct producer *producer, const char *destination)
{
    producer->file = -1;
    if (strncmp(destination, "file:", 5) == 0)
        producer->file = open(destination + 5, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    if (strncmp(destination, "redis:", 6) == 0)
        producer->redis = redisConnect("127.0.0.1", (int)strtol(destination + 6, NULL, 10));
    if (producer->redis && producer->redis->err)
        session_fail("redis", producer->redis->errstr);
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void run(struct producer *producers, long threads)
{
    for (long i = 0; i < threads; i++)
        if (pthread_create(&producers[i].thread, NULL, produce, &producers[i]) != 0)
            session_fail("pthread_create", "no thread");
    for (long i = 0; i < threads; i++)
        pthread_join(producers[i].thread, NULL);
}

static void close_all(struct producer *producers, long threads)
{
    for (long i = 0; i < threads; i++) {
        PQfinish(producers[i].insert);
        PQfinish(producers[i].read);
        redisFree(producers[i].redis);
        if (producers[i].file >= 0)
            close(producers[i].file);
    }
}

int main(int argc, char **argv)
{
    long threads = argc == 8 ? strtol(argv[4], NULL, 10) : 0;
    double rate = threads ? strtod(argv[5], NULL) : 0;
    int64_t each = threads > 0 ? strtoll(argv[6], NULL, 10) / threads : 0, count = each * threads;
    if (threads < 1 || threads > THREADS_MAX || rate <= 0 || count < 1)
        session_fail("usage", "latency CONNINFO INSERT READ THREADS RATE COUNT DESTINATION");
    struct producer producers[THREADS_MAX] = {0};
    int64_t *latencies_us = memory_array((size_t)count, sizeof *latencies_us);
    for (long i = 0; i < threads; i++) {
        struct producer *producer = &producers[i];
        producer->number = i;
        producer->insert = session_open(argv[1], argv[2]);
        if (strcmp(argv[7], "none") != 0)
            producer->read = session_open(argv[1], argv[3]);
        open_destination(producer, argv[7]);
        producer->interval_us = (double)threads * SECOND_US / rate;
        producer->count = each;
        producer->latencies_us = latencies_us + i * each;
    }
    instant_us begun = clock_now();
    for (long i = 0; i < threads; i++)
        producers[i].begin_at = begun + (instant_us)(producers[i].interval_us * (double)i / (double)threads);
    run(producers, threads);
    double seconds = (double)(clock_now() - begun) / SECOND_US;
    close_all(producers, threads);
    qsort(latencies_us, (size_t)count, sizeof *latencies_us, compare);
    int64_t p50 = latencies_us[count / 2], p99 = latencies_us[count * 99 / 100];
    printf("%.3f %.3f %.1f\n", (double)p50 / 1000, (double)p99 / 1000, (double)count / seconds);
    free(latencies_us);
    return 0;
}
