#include "relay/commands/replay.h"

#include "relay/base/arena.h"
#include "relay/base/statement.h"
#include "relay/base/suggest.h"
#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"
#include "relay/table/table.h"
#include "sinks/sink.h"
#include "sql_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLAIMS_A_SECOND 20 /* where there is a rate: so a claim has a twentieth of it */
#define WHERE_BYTES 1024

struct replay {
    struct asker asker;
    int64_t id, events;
    const struct queue_config *of;
    struct table *table; /* the queue's */
    struct sink_config sink;
    struct queue_config queue;
    struct config config;
    bool takes; /* what is sent leaves the dead letters */
    char number[24], name[96], table_name[64], where[WHERE_BYTES];
};

static const struct sink_config *find_sink(const struct config *config, const char *name, struct error *err)
{
    const struct sink_config *found = config_sink(config, name);
    if (found)
        return found;
    const char **names = memory_array(config->sink_count + 1, sizeof *names);
    for (size_t i = 0; i < config->sink_count; i++)
        names[i] = config->sinks[i].name;
    char hint[96];
    error_set(err, ERROR_CONFIG, "%s has no sink \"%s\"%s", config->path, name,
              suggest_text(name, names, hint, sizeof hint));
    free(names);
    return NULL;
}

/* Gives `queue` where it goes to: a sink of the configuration (NULL: its own), and a template (NULL: its own) that this
 * sink can do with and whose columns there are. Returns the queue's table, for table_free(). */
static struct table *direct(PGconn *conn, const struct config *config, struct queue_config *queue,
                            const char *sink_name, const char *destination, struct error *err)
{
    const struct sink_config *sink = find_sink(config, sink_name ? sink_name : queue->sink, err);
    if (!sink)
        return NULL;
    queue->sink = sink->name;
    queue->next = NULL;
    if (destination)
        queue->destination = (char *)destination;
    if (!queue->destination && sink->type->needs_destination) {
        error_set(err, ERROR_USAGE, "replay: give a destination: %s sinks need one, and queue %s has none",
                  sink->type->name, queue->name);
        return NULL;
    }
    return table_inspect(conn, queue, err);
}

/* ---- making one ---- */

/* Before anything is made: what the relay would miss later, too. */
static bool check_rights(PGconn *conn, struct error *err)
{
    static const char works[] = "{replay}";
    PGresult *missing = privilege_missing(conn, 0, works, err);
    bool ok = missing && PQntuples(missing) == 0;
    if (missing && !ok) {
        error_set(err, ERROR_PERMISSION, "replay: permission denied");
        privilege_explain(conn, 0, works, err);
    }
    PQclear(missing);
    return ok;
}

/* The answer to the commit may be what did not come. */
static bool may_be_made(const PGresult *made, struct error *err)
{
    const char *id = query_text(made, 0, 0);
    return error_set(err, err->kind, "%s%s%s%s", err->text, id ? "; look in outbox.replay whether replay " : "",
                     id ? id : "", id ? " was made, and --resume or --cancel it" : "");
}

static bool choose(const struct asker *asker, const struct replay_request *request, const struct queue_config *queue,
                   const struct table *table, PGresult **ret, struct error *err)
{
    char rate[24], oid[16];
    snprintf(rate, sizeof rate, "%" PRId64, request->rate);
    snprintf(oid, sizeof oid, "%u", table->oid);
    const struct column_moves *moves = request->moves;
    bool own_sink = request->sink && strcmp(request->sink, queue->sink) == 0;
    const char *const params[] = {request->queue,
                                  request->source,
                                  request->ids,
                                  request->key,
                                  request->type,
                                  request->since,
                                  request->until,
                                  own_sink ? NULL : request->sink,
                                  request->destination,
                                  request->rate > 0 ? rate : NULL,
                                  request->dry_run ? "true" : "false",
                                  oid,
                                  table->id_sql,
                                  table_sent_key(table),
                                  table->type_sql,
                                  table->payload_sql,
                                  table->headers_sql,
                                  queue->after == AFTER_ARCHIVE ? "archive" : "delete",
                                  queue->then,
                                  moves && moves->from ? moves->from : "{}",
                                  moves && moves->to ? moves->to : "{}"};
    /* The archive may be larger than what the role's time limit is meant for. */
    PGresult *made = query_script_or_cancel(asker, "begin; set local statement_timeout = 0", err)
                         ? query_or_cancel(asker, sql_replay_make, sizeof params / sizeof params[0], params, err)
                         : NULL;
    if (!made)
        return false;
    *ret = made;
    if (query_script_or_cancel(asker, "commit", err))
        return true;
    may_be_made(made, err);
    PQclear(made);
    return false;
}

bool replay_make(const struct asker *asker, const struct config *config, const struct replay_request *request,
                 int64_t *ret_id, int64_t *ret_events, struct error *err)
{
    const struct queue_config *queue = config_queue(config, request->queue, err);
    assert(queue && "who asks has looked for it");
    struct queue_config directed = *queue;
    struct table *table = direct(asker->conn, config, &directed, request->sink, request->destination, err);
    PGresult *made = NULL;
    bool ok = table && check_rights(asker->conn, err) && choose(asker, request, queue, table, &made, err);
    if (ok) {
        *ret_id = query_text(made, 0, 0) ? query_int(made, 0, 0) : 0;
        *ret_events = query_int(made, 0, 1);
        PQclear(made);
    }
    table_free(table);
    return ok;
}

/* ---- at work ---- */

/* Whether an event is still to be sent. A dead letter may have been retried, dropped, purged, or sent by another
 * replay. */
static const char *wanted(const struct replay *replay)
{
    return replay->takes ? "exists (select from outbox.dead d where d.dead_id = e.pgcourier_dead_id)" : "true";
}

/* What keeps a key's events back besides its lock. Spelled as in lock_ids.sql, for the same plan. */
static bool write_condition(struct replay *replay, struct error *err)
{
    const char *queue = replay->of->name, *key = replay->table->key_sql; /* a name has no quote in it */
    int n = snprintf(replay->where, WHERE_BYTES,
                     "%s and not exists (select from outbox.paused p where p.queue = '%s' and p.key is null)",
                     wanted(replay), queue);
    if (key)
        n += snprintf(replay->where + n, (size_t)(WHERE_BYTES - n),
                      " and (e.%s is null or not exists (select from outbox.parked p where p.queue = '%s' and not "
                      "p.keyless and p.key between (e.%s::text collate \"default\") and (e.%s::text collate "
                      "\"default\") and (p.resume_at is not null or p.token is not null and p.next_at > "
                      "pg_catalog.statement_timestamp()) order by p.key offset 0))",
                      key, queue, key, key);
    return n < WHERE_BYTES || error_set(err, ERROR_INTERNAL, "replay: the condition is too long");
}

/* The queue's own settings, but for what belongs to its table. What its events came after was done before they were
 * sent the first time; waiting for it again could have no end, since what fails here becomes no dead letter. */
static void write_queue(struct replay *replay, int64_t rate)
{
    static char per_key[] = "per_key", place[] = "replay", payload[] = "pgcourier_payload",
                headers[] = "pgcourier_headers";
    struct queue_config *queue = &replay->queue;
    queue->name = replay->name;
    queue->table = replay->table_name;
    queue->where = replay->where;
    queue->place = place;
    queue->unnoted = true;
    if (!queue->unordered)
        queue->ordering = per_key;
    queue->locks = LOCKS_ADVISORY;
    queue->lock_class = replay->table->lock_class;
    queue->keys_oid = replay->table->oid;
    queue->columns.payload = queue->columns.payload ? queue->columns.payload : payload;
    queue->columns.headers = queue->columns.headers ? queue->columns.headers : headers;
    queue->columns.not_before = queue->columns.after = queue->columns.priority = NULL;
    queue->window = queue->then = NULL;
    queue->response_max = 0;
    queue->after = AFTER_DELETE;
    queue->archive_retention_us = queue->dead_retention_us = 0;
    queue->on_exhausted = ON_EXHAUSTED_PARK;
    queue->oldest_share = 100;
    queue->rate = rate;
    if (rate == 0)
        return;
    int64_t keys = rate / CLAIMS_A_SECOND > 0 ? rate / CLAIMS_A_SECOND : 1;
    queue->connections = queue->max_events_per_key = 1;
    queue->keys_per_claim = keys < queue->keys_per_claim ? keys : queue->keys_per_claim;
}

/* `begun`: see sql/commands/replay_begin.sql. `rate` instead of its own, unless 0. */
static bool take_up(struct replay *replay, const struct config *config, const PGresult *begun, int64_t rate,
                    struct error *err)
{
    const char *sink = query_text(begun, 0, 1), *destination = query_text(begun, 0, 2);
    replay->events = query_int(begun, 0, 4);
    replay->takes = query_bool(begun, 0, 5);
    replay->of = config_queue(config, query_text(begun, 0, 0), err);
    if (!replay->of)
        return error_set(err, ERROR_CONFIG, "%s", err->text); /* it was not the command line that named it */
    replay->queue = *replay->of;
    replay->table = direct(replay->asker.conn, config, &replay->queue, sink, destination, err);
    if (!replay->table)
        return false;
    if (destination)
        replay->queue.destination = memory_text(destination);
    write_queue(replay, rate > 0 ? rate : query_int(begun, 0, 3));
    return write_condition(replay, err);
}

static bool begin(struct replay *replay, const struct config *config, int64_t rate, struct error *err)
{
    const char *params[] = {replay->number};
    PGresult *begun = query_or_cancel(&replay->asker, sql_replay_begin, 1, params, err);
    if (!begun)
        return privilege_explain(replay->asker.conn, 0, "{replay}", err);
    bool ok = take_up(replay, config, begun, rate, err);
    PQclear(begun);
    return ok;
}

/* The last statement's portal has its snapshot until another statement comes, and vacuum would be held back meanwhile:
 * so this is one that has none. */
static bool let_vacuum_pass(const struct asker *asker, struct error *err)
{
    return query_script_or_cancel(asker, "set local idle_in_transaction_session_timeout = 0", err);
}

static bool hold(const struct replay *replay, struct error *err)
{
    const char *params[] = {replay->number};
    PGresult *held = query_script_or_cancel(&replay->asker, "begin isolation level read committed", err) &&
                             query_script_or_cancel(&replay->asker, sql_session_transaction, err)
                         ? query_or_cancel(&replay->asker, sql_replay_hold, 1, params, err)
                         : NULL;
    PQclear(held);
    return held && let_vacuum_pass(&replay->asker, err);
}

struct replay *replay_open(const struct asker *asker, const struct config *config, int64_t id, int64_t rate,
                           struct error *err)
{
    struct replay *replay = memory_new(sizeof *replay);
    replay->asker = *asker;
    replay->id = id;
    snprintf(replay->number, sizeof replay->number, "%" PRId64, id);
    snprintf(replay->table_name, sizeof replay->table_name, "outbox.replay_%" PRId64, id);
    if (!begin(replay, config, rate, err) || !hold(replay, err)) {
        replay_close(replay);
        return NULL;
    }
    snprintf(replay->name, sizeof replay->name, "%s (replay %" PRId64 ")", replay->of->name, id);
    replay->sink = *config_sink(config, replay->queue.sink);
    replay->config = *config;
    replay->config.sinks = &replay->sink;
    replay->config.queues = &replay->queue;
    replay->config.sink_count = replay->config.queue_count = 1;
    return replay;
}

static struct asker last_question(const struct replay *replay)
{
    struct asker asker = replay->asker;
    asker.limit_us = REPLAY_LAST_S * SECOND_US;
    return asker;
}

static void let_go(const struct replay *replay)
{
    struct error ignored; /* nothing was written, and a session that does not answer ends with its connection */
    PGTransactionStatusType status = PQtransactionStatus(replay->asker.conn);
    struct asker asker = last_question(replay);
    if (status == PQTRANS_INTRANS || status == PQTRANS_INERROR)
        (void)!query_script_or_cancel(&asker, "rollback", &ignored);
}

static void end_and_free(struct replay *replay)
{
    let_go(replay);
    if (replay->table && replay->queue.destination != replay->of->destination)
        free(replay->queue.destination);
    table_free(replay->table);
    free(replay);
}

void replay_close(struct replay *replay)
{
    if (replay)
        end_and_free(replay);
}

const struct config *replay_config(const struct replay *replay)
{
    return &replay->config;
}

int64_t replay_events(const struct replay *replay)
{
    return replay->events;
}

bool replay_look(struct replay *replay, bool last, struct replay_left *ret, struct error *err)
{
    struct asker asker = last ? last_question(replay) : replay->asker;
    char id[160], key[160] = "null::text";
    snprintf(id, sizeof id, "e.%s", replay->table->id_sql);
    if (replay->table->key_sql)
        snprintf(key, sizeof key, "e.%s", replay->table->key_sql);
    const struct sql_variable variables[] = {
        {"table", replay->table_name}, {"id", id}, {"key", key}, {"wanted", wanted(replay)}, {NULL, NULL}};
    char *sql = sql_render(sql_replay_left, variables, err);
    const char *params[] = {replay->name, replay->of->name};
    PGresult *left = sql ? query_or_cancel(&asker, sql, 2, params, err) : NULL;
    free(sql);
    if (!left)
        return false;
    *ret = (struct replay_left){.unsent = query_int(left, 0, 0),
                                .movable = query_int(left, 0, 1),
                                .closed = query_int(left, 0, 2),
                                .paused = query_bool(left, 0, 4),
                                .withdrawn = query_int(left, 0, 5)};
    const char *error = query_text(left, 0, 3);
    snprintf(ret->error, sizeof ret->error, "%s", error ? error : "");
    PQclear(left);
    return let_vacuum_pass(&asker, err);
}

bool replay_finish(struct replay *replay, struct error *err)
{
    const char *params[] = {replay->number};
    PGresult *ended = query_or_cancel(&replay->asker, sql_replay_end, 1, params, err);
    PQclear(ended);
    if (ended)
        return query_script_or_cancel(&replay->asker, "commit", err);
    let_go(replay);
    return privilege_explain(replay->asker.conn, 0, "{replay}", err);
}

bool replay_cancel(const struct asker *asker, int64_t id, int64_t *ret_unsent, struct error *err)
{
    char number[24];
    snprintf(number, sizeof number, "%" PRId64, id);
    const char *params[] = {number};
    PGresult *ended = query_or_cancel(asker, sql_replay_end, 1, params, err);
    if (!ended)
        return privilege_explain(asker->conn, 0, "{replay}", err);
    *ret_unsent = query_int(ended, 0, 0);
    PQclear(ended);
    return true;
}
