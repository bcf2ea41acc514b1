/* relay/bench/bench.h -- one `pgcourier bench` under way: what its parts share.
 *
 *   bench_schema_open -> (bench_schema_fill -> bench_floor or bench_relay_drain)* -> bench_relay_latency
 *   -> bench_schema_close */
#pragma once

#include "relay/base/backoff.h"
#include "relay/base/log.h"
#include "relay/config/config.h"
#include "relay/postgres/db.h"
#include "relay/queue/metrics.h"

#include <libpq-fe.h>

#define BENCH_SCHEMA_SIZE 64
#define BENCH_EVENTS 200000 /* in one drain, unless --events says otherwise */

struct bench_options {
    int64_t events, keys, payload_bytes; /* of one drain */
    int64_t connections, pairs;
    int64_t rate, seconds; /* of the steady load, events/s; rate 0 = none */
};

struct bench {
    struct bench_options options;
    const struct config *config; /* one queue, over the schema's table, and one sink */
    const struct log *log;
    PGconn *conn;                   /* its session owns the schema */
    char schema[BENCH_SCHEMA_SIZE]; /* needs no quotes */
    int signal_fd;                  /* a signalfd(2) */
    bool made;                      /* the schema may be there */
    bool stop_signalled;            /* a signal has asked to stop */
    struct rng rng;
};

/* The settings of the server that the numbers depend on. */
struct bench_server {
    char version[64], fsync[16], synchronous_commit[32], shared_buffers[32];
    double round_trip_ms;
};

/* Has a signal asked to stop? True, and *err says so. */
bool bench_is_stopped(struct bench *bench, struct error *err);

/* One more connection, by the settings of the bench: db_free() it. */
struct db *bench_connect(struct bench *bench);

/* Runs one statement of sql/bench/ on bench->conn, with the schema's name in it; a signal cancels it. The result is the
 * caller's. NULL and *err on failure. */
PGresult *bench_query(struct bench *bench, const char *template, int count, const char *const *params,
                      struct error *err) MUST_CHECK;

/* The same without a result. */
bool bench_run(struct bench *bench, const char *template, int count, const char *const *params,
               struct error *err) MUST_CHECK;

/* A statement of sql/bench/ with this schema's name in it: free() it. */
char *bench_render(const char *template, const char *schema);

/* False and *err unless as many events were drained as there were; `who` drained them. */
bool bench_check_count(const struct bench *bench, const char *who, int64_t drained, struct error *err) MUST_CHECK;
