/* How long does the least take that a delivery is made of, when nothing else goes on?
 *
 *   roundtrip CONFIG CONNINFO INSERT COUNT REDIS_PORT
 *
 * One event at a time, inserted and committed over CONNINFO: then a claim of the only queue of CONFIG, an XADD and its
 * answer, and the settlement, each on a connection that has nothing else to do. The statements are the relay's own,
 * made by its strategy and sent as it sends them (relay/postgres/db.c): prepared, in pipelines of two round trips. Like
 * the relay it learns, as often as that does at most and on one more connection, how far ids are settled and what lies
 * below them empty: between two events, so that the answer costs none of them anything. Prints p50 and p99 of the three
 * together, in milliseconds. */
#include "bench/floor/session.h"
#include "ordering/ordering.h"
#include "relay/config/config.h"
#include "relay/postgres/connect.h"
#include "relay/table/table.h"
#include "relay/table/table_ordering.h"
#include "relay/table/table_sql.h"
#include "sinks/redis/redis_command.h"
#include "sql_text.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_UP 200
#define KNOWN_MAX 16
#define ROUND_MAX (ORDERING_STATEMENTS_MAX + 2)
#define CLAIM_KEYS 512              /* keys_per_claim's default */
#define PROBE_PAUSE_US (20 * MS_US) /* while ids are being settled: PROBE_MIN_US of relay/side/side.c */

struct pipeline {
    PGconn *conn; /* in pipeline mode, idle between rounds */
    const char *known[KNOWN_MAX];
    size_t known_count;
};

struct relay {
    struct pipeline claims, side;
    struct ordering *ordering;
    instant_us probe_at;
    struct claim_plan plan;
    struct arena *arena; /* of the event under way */
    struct event event;
    bool arrived;
    redisContext *redis;
};

static void take(const char *what, bool ok, const struct error *err)
{
    if (!ok)
        session_fail(what, err->text);
}

/* The name under which a text is prepared; prepares it when it is new. No round is under way. */
static void name_of(struct pipeline *pipeline, const char *sql, char name[8])
{
    size_t i = 0;
    while (i < pipeline->known_count && pipeline->known[i] != sql)
        i++;
    snprintf(name, 8, "s%zu", i % 100);
    if (i < pipeline->known_count)
        return;
    if (i == KNOWN_MAX || PQexitPipelineMode(pipeline->conn) != 1)
        session_fail("prepare", "too many statements");
    PGresult *res = PQprepare(pipeline->conn, name, sql, 0, NULL);
    if (PQresultStatus(res) != PGRES_COMMAND_OK || PQenterPipelineMode(pipeline->conn) != 1)
        session_fail("prepare", PQresultErrorMessage(res));
    PQclear(res);
    pipeline->known[pipeline->known_count++] = sql;
}

static bool on_event(void *to, const struct event *event, bool waited, struct error *err)
{
    (void)waited;
    struct relay *relay = to;
    if (relay->arrived)
        return error_set(err, ERROR_INTERNAL, "more than the one event");
    relay->arrived = true;
    struct event *copy = &relay->event;
    *copy = *event;
    struct span *texts[] = {&copy->event_id, &copy->key,     &copy->type,
                            &copy->payload,  &copy->headers, &copy->traceparent};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        *texts[i] = arena_copy(relay->arena, *texts[i]);
    return true;
}

static void on_gone(void *to, struct span key, int64_t id)
{
    (void)to, (void)key, (void)id;
}

static void on_delayed(void *to, struct span key, int64_t id, int64_t delay_us, int64_t after_id)
{
    (void)to, (void)key, (void)id, (void)delay_us, (void)after_id;
}

static void on_paused(void *to)
{
    (void)to;
}

static void read_claim(struct relay *relay, size_t index, const PGresult *res)
{
    const struct claim_intake intake = {.arena = relay->arena,
                                        .to = relay,
                                        .event = on_event,
                                        .ended_wait = on_gone,
                                        .delayed = on_delayed,
                                        .paused = on_paused};
    struct error err;
    if (index > 0) /* behind the BEGIN */
        take("claim", relay->ordering->type->claimed(relay->ordering, &relay->plan, index - 1, res, &intake, &err),
             &err);
}

static void read_probe(struct relay *relay, size_t index, const PGresult *res)
{
    relay->ordering->type->probed(relay->ordering, index, res);
}

static void read_nothing(struct relay *relay, size_t index, const PGresult *res)
{
    (void)relay, (void)index, (void)res;
}

/* `read` gets the result of each. */
static void run_round(struct relay *relay, struct pipeline *pipeline, const struct statement *statements, size_t count,
                      void (*read)(struct relay *relay, size_t index, const PGresult *res))
{
    PGconn *conn = pipeline->conn;
    char names[ROUND_MAX][8];
    for (size_t i = 0; i < count; i++)
        name_of(pipeline, statements[i].sql, names[i]);
    for (size_t i = 0; i < count; i++) {
        const struct statement *st = &statements[i];
        if (!PQsendQueryPrepared(conn, names[i], st->count, st->values, st->lengths, st->formats, 1))
            session_fail("send", PQerrorMessage(conn));
    }
    if (!PQpipelineSync(conn))
        session_fail("sync", PQerrorMessage(conn));
    for (size_t i = 0; i < count; i++)
        for (PGresult *res; (res = PQgetResult(conn)); PQclear(res)) {
            ExecStatusType status = PQresultStatus(res);
            if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
                session_fail("execute", PQresultErrorMessage(res));
            read(relay, i, res);
        }
    PQclear(PQgetResult(conn)); /* the sync's */
}

static void probe(struct relay *relay, instant_us now)
{
    struct statement statements[ROUND_MAX];
    size_t count = relay->ordering->type->probe(relay->ordering, now, relay->arena, statements);
    run_round(relay, &relay->side, statements, count, read_probe);
    relay->probe_at = clock_now() + PROBE_PAUSE_US;
}

static void claim(struct relay *relay, instant_us now)
{
    static const struct claim_request request = {.max_keys = CLAIM_KEYS, .events_per_key = 1};
    struct statement statements[ROUND_MAX] = {statement_of(sql_claim_begin)};
    size_t count =
        relay->ordering->type->claim(relay->ordering, &request, now, relay->arena, statements + 1, &relay->plan);
    run_round(relay, &relay->claims, statements, count + 1, read_claim);
    if (!relay->arrived)
        session_fail("claim", "did not find the event");
    relay->plan.events = 1;
    relay->ordering->type->claim_done(relay->ordering, &relay->plan, clock_now() - now, clock_now());
}

static void deliver(struct relay *relay)
{
    struct delivery d = {.event = &relay->event, .destination = SPAN_LITERAL("floor"), .arena = relay->arena};
    struct redis_command command;
    redis_command_build(&command, REDIS_STREAM, 0, &d);
    redisReply *reply = redisCommandArgv(relay->redis, (int)command.argc, command.argv, command.sizes);
    if (!reply || reply->type == REDIS_REPLY_ERROR)
        session_fail("redis", reply ? reply->str : relay->redis->errstr);
    freeReplyObject(reply);
}

static void settle(struct relay *relay)
{
    const struct settlement settlement = {.done = &relay->event.id, .tids = &relay->event.tid, .done_count = 1};
    struct statement statements[ROUND_MAX];
    size_t count = relay->ordering->type->settle(relay->ordering, &settlement, relay->arena, statements);
    statements[count++] = statement_of("commit");
    run_round(relay, &relay->claims, statements, count, read_nothing);
}

/* As relay/postgres/db.c sets up a session of its own. Not in pipeline mode yet. */
static void open_session(struct pipeline *pipeline, const struct config *config)
{
    struct error err;
    pipeline->conn = command_connect(config->database, "floor", &err);
    take("connect", pipeline->conn != NULL, &err);
    const char *values[] = {"UTF8", "30000", "5000"};
    PGresult *res = PQexecParams(pipeline->conn, sql_session_settings, sizeof values / sizeof values[0], NULL, values,
                                 NULL, NULL, 0);
    if (PQresultStatus(res) != PGRES_TUPLES_OK)
        session_fail("settings", PQresultErrorMessage(res));
    PQclear(res);
}

static void enter_pipeline(struct pipeline *pipeline)
{
    if (PQenterPipelineMode(pipeline->conn) != 1)
        session_fail("pipeline", PQerrorMessage(pipeline->conn));
}

static struct ordering *open_ordering(const struct queue_config *queue, const struct table *table, struct arena *arena)
{
    struct error err;
    const struct ordering_options options = table_ordering_options(table, queue, table_variables(table, queue, arena));
    struct ordering *ordering = ordering_per_key.open(&options, &err);
    take("ordering", ordering != NULL, &err);
    return ordering;
}

static int compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static void measure(struct relay *relay, PGconn *producer, int64_t count)
{
    const char *number[] = {"0"};
    int64_t *took_us = memory_array((size_t)count, sizeof *took_us);
    for (int64_t i = -WARM_UP; i < count; i++) {
        relay->arena = arena_new();
        relay->arrived = false;
        if (clock_now() >= relay->probe_at)
            probe(relay, clock_now());
        PQclear(session_run(producer, 1, number));
        instant_us begun = clock_now();
        claim(relay, begun);
        deliver(relay);
        settle(relay);
        if (i >= 0)
            took_us[i] = clock_now() - begun;
        arena_free(relay->arena);
    }
    qsort(took_us, (size_t)count, sizeof *took_us, compare);
    int64_t p50 = took_us[count / 2], p99 = took_us[count * 99 / 100];
    printf("%.3f %.3f\n", (double)p50 / MS_US, (double)p99 / MS_US);
    free(took_us);
}

int main(int argc, char **argv)
{
    int64_t count = argc == 6 ? strtoll(argv[4], NULL, 10) : 0;
    if (count < 1)
        session_fail("usage", "roundtrip CONFIG CONNINFO INSERT COUNT REDIS_PORT");
    struct error err;
    struct config *config = config_load(argv[1], &err);
    take("config", config != NULL, &err);
    struct relay relay = {.redis = redisConnect("127.0.0.1", (int)strtol(argv[5], NULL, 10))};
    if (!relay.redis || relay.redis->err)
        session_fail("redis", "not connected");
    open_session(&relay.claims, config);
    open_session(&relay.side, config);
    struct table *table = table_inspect(relay.claims.conn, &config->queues[0], &err);
    take("table", table != NULL, &err);
    struct arena *arena = arena_new();
    relay.ordering = open_ordering(&config->queues[0], table, arena);
    enter_pipeline(&relay.claims);
    enter_pipeline(&relay.side);
    PGconn *producer = session_open(argv[2], argv[3]);
    measure(&relay, producer, count);
    PQfinish(producer);
    relay.ordering->type->close(relay.ordering);
    PQfinish(relay.claims.conn);
    PQfinish(relay.side.conn);
    redisFree(relay.redis);
    table_free(table);
    arena_free(arena);
    config_free(config);
    return 0;
}
