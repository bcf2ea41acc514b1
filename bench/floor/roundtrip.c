/* How long does the least take that a delivery is made of, when nothing else goes on?
 *
 *   roundtrip CONFIG CONNINFO INSERT COUNT REDIS_PORT
 *
 * One event at a time, inserted and committed over CONNINFO: then a claim of the only queue of CONFIG, an XADD and its
 * answer, and the settlement, each on a connection that has nothing else to do. The statements are the relay's own,
 * made by its strategy and sent as it sends them (relay/db.c): prepared, in pipelines of two round trips. Prints p50
 * and p99 of the three together, in milliseconds. */
#include "bench/floor/session.h"
#include "ordering/ordering.h"
#include "relay/command.h"
#include "relay/config.h"
#include "relay/table.h"
#include "relay/table_sql.h"
#include "sinks/redis_command.h"
#include "sql_text.h"

#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WARM_UP 200
#define KNOWN_MAX 16
#define ROUND_MAX (ORDERING_STATEMENTS_MAX + 2)
#define CLAIM_KEYS 512 /* keys_per_claim's default */

struct relay {
    PGconn *conn; /* in pipeline mode, idle between rounds */
    const char *known[KNOWN_MAX];
    size_t known_count;
    struct ordering *ordering;
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
static void name_of(struct relay *relay, const char *sql, char name[8])
{
    size_t i = 0;
    while (i < relay->known_count && relay->known[i] != sql)
        i++;
    snprintf(name, 8, "s%zu", i % 100);
    if (i < relay->known_count)
        return;
    if (i == KNOWN_MAX || PQexitPipelineMode(relay->conn) != 1)
        session_fail("prepare", "too many statements");
    PGresult *res = PQprepare(relay->conn, name, sql, 0, NULL);
    if (PQresultStatus(res) != PGRES_COMMAND_OK || PQenterPipelineMode(relay->conn) != 1)
        session_fail("prepare", PQresultErrorMessage(res));
    PQclear(res);
    relay->known[relay->known_count++] = sql;
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

static void on_paused(void *to)
{
    (void)to;
}

/* `first`: the result of which statement of the round is the claim's first; those of a settlement are not read. */
static void run_round(struct relay *relay, const struct statement *statements, size_t count, size_t first,
                      size_t claims)
{
    const struct claim_intake intake = {
        .arena = relay->arena, .to = relay, .event = on_event, .gone = on_gone, .paused = on_paused};
    char names[ROUND_MAX][8];
    struct error err;
    for (size_t i = 0; i < count; i++)
        name_of(relay, statements[i].sql, names[i]);
    for (size_t i = 0; i < count; i++) {
        const struct statement *st = &statements[i];
        if (!PQsendQueryPrepared(relay->conn, names[i], st->count, st->values, st->lengths, st->formats, 1))
            session_fail("send", PQerrorMessage(relay->conn));
    }
    if (!PQpipelineSync(relay->conn))
        session_fail("sync", PQerrorMessage(relay->conn));
    for (size_t i = 0; i < count; i++)
        for (PGresult *res; (res = PQgetResult(relay->conn)); PQclear(res)) {
            ExecStatusType status = PQresultStatus(res);
            if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
                session_fail("execute", PQresultErrorMessage(res));
            if (i >= first && i < first + claims)
                take("claim",
                     relay->ordering->type->claimed(relay->ordering, &relay->plan, i - first, res, &intake, &err),
                     &err);
        }
    PQclear(PQgetResult(relay->conn)); /* the sync's */
}

static void claim(struct relay *relay, instant_us now)
{
    static const struct claim_request request = {.max_keys = CLAIM_KEYS, .events_per_key = 1};
    struct statement statements[ROUND_MAX] = {statement_of(sql_claim_begin)};
    size_t count =
        relay->ordering->type->claim(relay->ordering, &request, now, relay->arena, statements + 1, &relay->plan);
    run_round(relay, statements, count + 1, 1, count);
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
    const struct settlement settlement = {.done = &relay->event.id, .done_count = 1};
    struct statement statements[ROUND_MAX];
    size_t count = relay->ordering->type->settle(relay->ordering, &settlement, relay->arena, statements);
    statements[count++] = statement_of("commit");
    run_round(relay, statements, count, 0, 0);
}

/* As relay/db.c sets up a session of its own. */
static void open_session(struct relay *relay, const struct config *config)
{
    struct error err;
    relay->conn = command_connect(config->database, "floor", &err);
    take("connect", relay->conn != NULL, &err);
    const char *values[] = {"UTF8", "30000", "5000"};
    PGresult *res =
        PQexecParams(relay->conn, sql_session_settings, sizeof values / sizeof values[0], NULL, values, NULL, NULL, 0);
    if (PQresultStatus(res) != PGRES_TUPLES_OK)
        session_fail("settings", PQresultErrorMessage(res));
    PQclear(res);
}

static struct ordering *open_ordering(const struct queue_config *queue, const struct table *table, struct arena *arena)
{
    struct error err;
    const struct ordering_options options = {
        .queue = queue->name,
        .variables = table_variables(table, queue, arena),
        .lock_class = table->lock_class,
        .payload_kind = table->payload_kind,
        .headers_kind = table->headers_kind,
        .keys_per_claim = queue->keys_per_claim,
        .oldest_share = queue->oldest_share,
        .sequence = table->sequence_sql != NULL,
    };
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
        PQclear(session_run(producer, 1, number));
        relay->arena = arena_new();
        relay->arrived = false;
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
    open_session(&relay, config);
    struct table *table = table_inspect(relay.conn, &config->queues[0], &err);
    take("table", table != NULL, &err);
    struct arena *arena = arena_new();
    relay.ordering = open_ordering(&config->queues[0], table, arena);
    if (PQenterPipelineMode(relay.conn) != 1)
        session_fail("pipeline", PQerrorMessage(relay.conn));
    PGconn *producer = session_open(argv[2], argv[3]);
    measure(&relay, producer, count);
    PQfinish(producer);
    relay.ordering->type->close(relay.ordering);
    PQfinish(relay.conn);
    redisFree(relay.redis);
    table_free(table);
    arena_free(arena);
    config_free(config);
    return 0;
}
