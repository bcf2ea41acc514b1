/* DESIGN. The session of bench->conn holds an advisory lock on the schema's name from before it is made: a schema whose
 * lock can be had belongs to nobody any more, whatever became of the process that made it. */
#include "relay/bench/bench_schema.h"

#include "relay/base/clock.h"
#include "relay/postgres/connect.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "relay/table/table.h"
#include "sql_text.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_TRIPS 5
#define CLEAN_PATIENCE_US (5 * SECOND_US) /* of a client that is gone the server knows after 1 s: bench_watch.sql */
#define CLEAN_LOOK_MS 100

/* The columns of sql/bench/bench_server.sql and bench_leftovers.sql, and the first of sql/table/table_server.sql. */
enum { SERVER_VERSION, SERVER_FSYNC, SERVER_COMMIT, SERVER_BUFFERS, SERVER_PUBLICATION, SERVER_READ_ONLY };
enum { LEFTOVER_NAME, LEFTOVER_OWNER, LEFTOVER_DROPPABLE };
enum { TABLE_LOCK_SLOTS, TABLE_LOCKS_EACH };

static bool check_server(const PGresult *server, const PGconn *conn, struct error *err)
{
    if (query_bool(server, 0, SERVER_READ_ONLY))
        return error_set(err, ERROR_UNREACHABLE,
                         "bench: the server is a standby, or the session is read-only, and a bench writes; connect to "
                         "the primary, e.g. with target_session_attrs=read-write");
    const char *publication = query_text(server, 0, SERVER_PUBLICATION);
    if (publication)
        return error_set(err, ERROR_CONFIG,
                         "bench: the publication \"%s\" of the database %s is for all tables: its subscribers would be "
                         "sent the bench's table; bench another database of this server, with -d",
                         publication, PQdb(conn));
    return true;
}

/* A relay is warned of that, for its queue may be all that the server is for. A bench is a guest: where locks run out,
 * it is the production relays beside it that fail. A key is held once, by whichever connection. */
static bool check_locks(struct bench *bench, struct error *err)
{
    PGresult *server = bench_query(bench, sql_table_server, 0, NULL, err);
    if (!server)
        return false;
    int64_t slots = query_int(server, 0, TABLE_LOCK_SLOTS), per_transaction = query_int(server, 0, TABLE_LOCKS_EACH);
    PQclear(server);
    int64_t wanted = table_locks_wanted(&bench->config->queues[0]);
    if (wanted > bench->options.keys)
        wanted = bench->options.keys;
    return slots <= 0 || wanted <= slots / 2 ||
           error_set(err, ERROR_CONFIG,
                     "bench: its claims may come to hold %" PRId64 " locks, and the server has about %" PRId64
                     " for everybody: when they run out, other sessions fail; lower --connections or --keys, or set "
                     "max_locks_per_transaction = %" PRId64 " and restart the server",
                     wanted, slots, table_locks_needed(wanted, slots, per_transaction));
}

/* A pooler's clients get a made-up number for their backend's. */
static bool check_session(PGconn *conn, const PGresult *hello, struct error *err)
{
    return query_int(hello, 0, 0) == PQbackendPID(conn) ||
           error_set(err, ERROR_CONFIG,
                     "bench: a pooler shares the session, and the bench's schema belongs to one; connect to the server "
                     "itself, with -d");
}

static bool measure_round_trip(struct bench *bench, double *ret_ms, struct error *err)
{
    instant_us best = INSTANT_NEVER;
    bool ok = true;
    for (int i = 0; ok && i < ROUND_TRIPS; i++) {
        instant_us begun = clock_now();
        PGresult *hello = bench_query(bench, sql_session_hello, 0, NULL, err);
        best = instant_min(best, clock_now() - begun);
        ok = hello && check_session(bench->conn, hello, err);
        PQclear(hello);
    }
    if (ok)
        *ret_ms = (double)best / MS_US;
    return ok;
}

static void read_server(const PGresult *server, struct bench_server *ret)
{
    snprintf(ret->version, sizeof ret->version, "%s", query_text(server, 0, SERVER_VERSION));
    snprintf(ret->fsync, sizeof ret->fsync, "%s", query_text(server, 0, SERVER_FSYNC));
    snprintf(ret->synchronous_commit, sizeof ret->synchronous_commit, "%s", query_text(server, 0, SERVER_COMMIT));
    snprintf(ret->shared_buffers, sizeof ret->shared_buffers, "%s", query_text(server, 0, SERVER_BUFFERS));
}

bool bench_schema_check(struct bench *bench, struct bench_server *ret, struct error *err)
{
    struct bench_server found;
    PGresult *server = bench_query(bench, sql_bench_server, 0, NULL, err);
    if (server)
        read_server(server, &found);
    bool ok = server && check_server(server, bench->conn, err);
    PQclear(server);
    if (!ok || !measure_round_trip(bench, &found.round_trip_ms, err) || !check_locks(bench, err))
        return false;
    *ret = found;
    return true;
}

struct ownership {
    bool mine;  /* nobody else has it */
    bool there; /* the schema */
};

static bool own(struct bench *bench, const char *schema, struct ownership *ret, struct error *err)
{
    PGresult *lock = bench_query(bench, sql_bench_lock, 1, &schema, err);
    if (!lock)
        return false;
    *ret = (struct ownership){query_bool(lock, 0, 0), query_bool(lock, 0, 1)};
    PQclear(lock);
    return true;
}

/* How many tables go with it. */
static void ignore_notice(void *unused, const PGresult *notice)
{
    (void)unused, (void)notice;
}

/* A large schema takes its time, and a signal ends that. A bench that was stopped before tries for a while. */
static bool drop(const struct bench *bench, PGconn *conn, const char *schema, struct error *err)
{
    const struct asker asker = {.conn = conn,
                                .what = "bench",
                                .stop_fd = bench->stop_signalled ? -1 : bench->signal_fd,
                                .limit_us = bench->stop_signalled ? QUERY_ANSWER_S * SECOND_US : 0};
    char *sql = bench_render(sql_bench_drop, schema);
    PQsetNoticeReceiver(conn, ignore_notice, NULL);
    bool ok = query_script_or_cancel(&asker, sql, err);
    free(sql);
    return ok;
}

static bool drop_leftover(struct bench *bench, const char *schema, struct error *err)
{
    /* Said beforehand, as it may have to wait for somebody who reads there. */
    fprintf(stderr, "dropping the schema %s, which a bench has left behind\n", schema);
    bool ok = drop(bench, bench->conn, schema, err);
    if (!ok)
        (void)bench_is_stopped(bench, err);
    return ok;
}

/* What a query of bench_leftovers.sql has found. */
struct leftover {
    const char *schema, *owner;
    bool droppable;
};

/* The session of a bench that was killed ends soon, but not at once. */
static bool own_until(struct bench *bench, const char *schema, instant_us until, struct ownership *ret,
                      struct error *err)
{
    struct pollfd signal = {.fd = bench->signal_fd, .events = POLLIN};
    bool ok;
    while ((ok = own(bench, schema, ret, err)) && !ret->mine && clock_now() < until)
        poll(&signal, 1, CLEAN_LOOK_MS);
    return ok;
}

/* For what is no reason to end at once; the command says the error with which it ends. */
static void tell(const struct error *err)
{
    fprintf(stderr, "pgcourier: %s\n", err->text);
}

/* *in_use is an error to end with. One that is there already is printed. */
static bool note_in_use(struct bench *bench, const struct leftover *left, struct error *in_use, struct error *err)
{
    PGresult *holder = bench_query(bench, sql_bench_holder, 1, &left->schema, err);
    if (!holder)
        return false;
    if (in_use->kind != ERROR_NONE)
        tell(in_use);
    const char *pid = query_text(holder, 0, 0);
    error_set(in_use, ERROR_CONFLICT,
              "bench: the schema %s is in use by a bench of %s: wait for its end%s%s%s and repeat pgcourier bench "
              "--clean",
              left->schema, left->owner, pid ? ", or end it with select pg_terminate_backend(" : "", pid ? pid : "",
              pid ? ")," : "");
    PQclear(holder);
    return true;
}

/* `until`: how long to wait for what is in use; 0: that is passed over. */
static bool clean(struct bench *bench, const struct leftover *left, instant_us until, struct error *in_use,
                  struct error *err)
{
    struct ownership has;
    if (!own_until(bench, left->schema, until, &has, err))
        return false;
    if (!has.there)
        return true; /* its bench has ended meanwhile */
    if (has.mine && left->droppable)
        return drop_leftover(bench, left->schema, err);
    if (has.mine)
        fprintf(stderr,
                "the schema %s is left over from a bench and belongs to %s; as that role: pgcourier bench --clean\n",
                left->schema, left->owner);
    return has.mine || until == 0 || note_in_use(bench, left, in_use, err);
}

bool bench_schema_clean(struct bench *bench, bool all, struct error *err)
{
    struct error in_use = {0};
    instant_us until = all ? clock_now() + CLEAN_PATIENCE_US : 0;
    PGresult *found = bench_query(bench, sql_bench_leftovers, 0, NULL, err);
    bool ok = found != NULL;
    for (int row = 0; ok && row < PQntuples(found); row++) {
        struct leftover left = {query_text(found, row, LEFTOVER_NAME), query_text(found, row, LEFTOVER_OWNER),
                                query_bool(found, row, LEFTOVER_DROPPABLE)};
        ok = clean(bench, &left, until, &in_use, err);
    }
    PQclear(found);
    if (in_use.kind == ERROR_NONE)
        return ok;
    if (!ok)
        tell(&in_use);
    else
        *err = in_use;
    return false;
}

static bool create(PGconn *conn, const char *schema, struct error *err)
{
    struct error ignored; /* the first error is the one to report */
    char *sql = bench_render(sql_bench_create, schema);
    bool ok = query_script(conn, "bench", sql, err);
    free(sql);
    if (!ok)
        (void)!query_script(conn, "bench", "rollback", &ignored);
    return ok || privilege_explain(conn, 0, "{bench}", err);
}

bool bench_schema_open(struct bench *bench, struct error *err)
{
    struct ownership has; /* it is ours: nobody else knows the name */
    struct error refused;
    (void)!bench_run(bench, sql_bench_watch, 0, NULL, &refused); /* without it, --clean may have to wait */
    bench->made = bench_run(bench, sql_bench_session, 0, NULL, err) && own(bench, bench->schema, &has, err);
    return bench->made && create(bench->conn, bench->schema, err);
}

bool bench_schema_empty(struct bench *bench, struct error *err)
{
    return bench_run(bench, sql_bench_truncate, 0, NULL, err);
}

bool bench_schema_fill(struct bench *bench, struct error *err)
{
    char events[24], keys[24], bytes[24];
    snprintf(events, sizeof events, "%" PRId64, bench->options.events);
    snprintf(keys, sizeof keys, "%" PRId64, bench->options.keys);
    snprintf(bytes, sizeof bytes, "%" PRId64, bench->options.payload_bytes);
    const char *params[] = {events, keys, bytes};
    return bench_schema_empty(bench, err) && bench_run(bench, sql_bench_fill, 3, params, err) &&
           bench_run(bench, sql_bench_vacuum, 0, NULL, err);
}

/* A signal that has come by now has ended the measuring, or the drop before this one. */
static bool drop_own(struct bench *bench, PGconn *conn, struct error *err)
{
    (void)bench_is_stopped(bench, err);
    return drop(bench, conn, bench->schema, err);
}

/* Without the lock of its session the schema may have been dropped by another bench by now, and that is as well. */
static bool drop_anew(struct bench *bench, struct error *err)
{
    PGconn *conn = command_connect(bench->config->database, "bench", err);
    bool ok = conn && drop_own(bench, conn, err);
    PQfinish(conn);
    return ok;
}

bool bench_schema_close(struct bench *bench, struct error *err)
{
    if (!bench->made || drop_own(bench, bench->conn, err) || drop_anew(bench, err))
        return true;
    struct error cause = *err;
    return error_set(err, cause.kind,
                     "bench: the schema %s could not be dropped and is left behind: %.250s; once that is mended: "
                     "pgcourier bench --clean",
                     bench->schema, cause.text);
}
