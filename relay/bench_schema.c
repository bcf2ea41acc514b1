/* DESIGN. The session of bench->conn holds an advisory lock on the schema's name from before it is made: a schema whose
 * lock can be had belongs to nobody any more, whatever became of the process that made it. */
#include "relay/bench_schema.h"

#include "relay/base/clock.h"
#include "relay/command.h"
#include "relay/privilege.h"
#include "relay/query.h"
#include "relay/table.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND_TRIPS 5

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
    PGresult *server = bench_query(bench, sql_bench_server, 0, NULL, err);
    if (server)
        read_server(server, ret);
    bool ok = server && check_server(server, bench->conn, err);
    PQclear(server);
    return ok && measure_round_trip(bench, &ret->round_trip_ms, err) && check_locks(bench, err);
}

/* *ret: nobody else has it. */
static bool own(struct bench *bench, const char *schema, bool *ret, struct error *err)
{
    PGresult *lock = bench_query(bench, sql_bench_lock, 1, &schema, err);
    *ret = lock && query_bool(lock, 0, 0);
    PQclear(lock);
    return lock != NULL;
}

/* How many tables go with it. */
static void ignore_notice(void *unused, const PGresult *notice)
{
    (void)unused, (void)notice;
}

static bool drop(PGconn *conn, const char *schema, struct error *err)
{
    char *sql = bench_render(sql_bench_drop, schema);
    PQsetNoticeReceiver(conn, ignore_notice, NULL);
    bool ok = query_script_in_time(conn, "bench", sql, err);
    free(sql);
    return ok;
}

static bool drop_leftover(PGconn *conn, const char *schema, struct error *err)
{
    bool ok = drop(conn, schema, err);
    if (ok)
        fprintf(stderr, "dropped the schema %s, which a bench had left behind\n", schema);
    return ok;
}

static bool clean(struct bench *bench, const PGresult *found, int row, bool all, struct error *err)
{
    const char *schema = query_text(found, row, LEFTOVER_NAME), *owner = query_text(found, row, LEFTOVER_OWNER);
    bool mine, ok = own(bench, schema, &mine, err);
    if (mine && query_bool(found, row, LEFTOVER_DROPPABLE))
        ok = drop_leftover(bench->conn, schema, err);
    else if (mine)
        fprintf(stderr,
                "the schema %s is left over from a bench and belongs to %s; as that role: pgcourier bench --clean\n",
                schema, owner);
    else if (ok && all)
        fprintf(stderr, "the schema %s is in use by a bench of %s\n", schema, owner);
    return ok;
}

bool bench_schema_clean(struct bench *bench, bool all, struct error *err)
{
    PGresult *found = bench_query(bench, sql_bench_leftovers, 0, NULL, err);
    bool ok = found != NULL;
    for (int row = 0; ok && row < PQntuples(found); row++)
        ok = clean(bench, found, row, all, err);
    PQclear(found);
    return ok;
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
    bool mine; /* it is: nobody else knows the name */
    bench->made = bench_run(bench, sql_bench_session, 0, NULL, err) && own(bench, bench->schema, &mine, err);
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

/* Without the lock of its session the schema may have been dropped by another bench by now, and that is as well. */
static bool drop_anew(struct bench *bench, struct error *err)
{
    PGconn *conn = command_connect(bench->config->database, "bench", err);
    bool ok = conn && drop(conn, bench->schema, err);
    PQfinish(conn);
    return ok;
}

bool bench_schema_close(struct bench *bench, struct error *err)
{
    if (!bench->made || drop(bench->conn, bench->schema, err) || drop_anew(bench, err))
        return true;
    struct error cause = *err;
    return error_set(err, cause.kind,
                     "bench: the schema %s could not be dropped and is left behind: %.250s; once that is mended: "
                     "pgcourier bench --clean",
                     bench->schema, cause.text);
}
