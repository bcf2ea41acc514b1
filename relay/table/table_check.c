#include "relay/base/statement.h"
#include "relay/postgres/query.h"
#include "relay/table/name_check.h"
#include "relay/table/next_check.h"
#include "relay/table/table.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* One check under way: what it looks at and where its findings go. */
struct check {
    PGconn *conn;
    const struct queue_config *queue;
    const struct table *table;
    struct findings *findings;
    char oid[16], id_attnum[16], key_attnum[16], priority_attnum[16];
};

static PGresult *ask(struct check *check, const char *sql, int count, const char *const *params, struct error *err)
{
    return query_in_time(check->conn, check->table->plain_name, sql, count, params, err);
}

static bool locks_rows(const struct queue_config *queue)
{
    return queue->unordered && queue->locks == LOCKS_ROWS;
}

int64_t table_locks_wanted(const struct queue_config *queue)
{
    return queue->keys_per_claim * queue->connections * CLAIM_LOCKS_FACTOR;
}

int64_t table_locks_needed(int64_t wanted, int64_t slots, int64_t per_transaction)
{
    return per_transaction * wanted * 2 / slots + 1;
}

/* Half leaves room for the application's own locks; more than the whole can never be had at once. */
static void check_lock_budget(struct check *check, int64_t slots, int64_t per_transaction)
{
    int64_t wanted = table_locks_wanted(check->queue);
    if (locks_rows(check->queue) || slots <= 0 || wanted <= slots / 2)
        return;
    bool impossible = wanted > slots;
    struct finding *finding = findings_add(
        check->findings, impossible ? FINDING_ERROR : FINDING_WARNING,
        "%" PRId64 " keys a claim on %" PRId64 " connections may come to hold %" PRId64
        " locks while a slow delivery keeps a transaction open, and the server has about %" PRId64
        " for everybody%s; lower keys_per_claim or connections, or raise the server's limit and restart it",
        check->queue->keys_per_claim, check->queue->connections, wanted, slots,
        impossible ? "" : "; when they run out, other sessions fail");
    finding_mend(finding, "alter system set max_locks_per_transaction = %" PRId64 ";",
                 table_locks_needed(wanted, slots, per_transaction));
}

static void check_durability(struct check *check, const char *synchronous_commit, const char *fsync)
{
    if (strcmp(synchronous_commit, "off") == 0)
        finding_mend(
            findings_add(
                check->findings, FINDING_WARNING,
                "synchronous_commit is off: a crash of the server loses events that were committed, and brings back "
                "events that were delivered"),
            "alter database \"%s\" set synchronous_commit = on;", PQdb(check->conn));
    if (strcmp(fsync, "off") == 0)
        finding_mend(findings_add(check->findings, FINDING_WARNING,
                                  "fsync is off: a power failure may lose or damage everything"),
                     "alter system set fsync = on;");
}

/* `lacking`: what is not in it, or NULL. */
static void check_schema(struct check *check, bool there, const char *lacking)
{
    if (!there)
        findings_add(
            check->findings, FINDING_ERROR,
            "the database %s has no outbox schema, where retries and dead letters are kept: run pgcourier migrate",
            PQdb(check->conn));
    else if (lacking)
        findings_add(check->findings, FINDING_ERROR,
                     "the outbox schema of database %s is that of an earlier pgcourier (%s): run pgcourier migrate",
                     PQdb(check->conn), lacking);
}

static bool check_server(struct check *check, struct error *err)
{
    PGresult *result = ask(check, sql_table_server, 0, NULL, err);
    if (!result)
        return false;
    check_lock_budget(check, query_int(result, 0, 0), query_int(result, 0, 1));
    check_durability(check, query_text(result, 0, 2), query_text(result, 0, 3));
    if (!check->queue->state)
        check_schema(check, query_bool(result, 0, 4), query_text(result, 0, 5));
    PQclear(result);
    return true;
}

static bool check_privileges(struct check *check, struct error *err)
{
    if (check->queue->state)
        return true; /* all of it is our own */
    char works[64];
    snprintf(works, sizeof works, "{run%s%s%s%s%s}", check->queue->unnoted ? "" : ",note",
             locks_rows(check->queue) ? ",lock rows" : "", table_comes_after(check->table) ? ",come after" : "",
             check->queue->after == AFTER_ARCHIVE ? ",archive" : "",
             check->queue->dead_retention_us > 0 ? ",purge" : "");
    return findings_add_missing(check->findings, check->conn, check->table->oid, works, err);
}

static void check_unique_id(struct check *check, bool partitioned, bool id_leads)
{
    const struct table *table = check->table;
    if (table->index_id)
        return;
    if (partitioned && id_leads) {
        findings_add(
            check->findings, FINDING_WARNING,
            "%s of %s is unique only within a partition: nothing keeps an id from being used twice, and events are "
            "deleted by id",
            table->id_sql, table->plain_name);
        return;
    }
    finding_mend(findings_add(check->findings, FINDING_ERROR,
                              "%s of %s is not unique: events are deleted by id, and a repeated one would be lost",
                              table->id_sql, table->plain_name),
                 partitioned ? "alter table %s add primary key (%s);" : "create unique index concurrently on %s (%s);",
                 table->name_sql, table->id_sql);
}

/* The columns of sql/table/table_facts.sql. */
enum { FACT_UNLOGGED, FACT_PARTITIONED, FACT_ID_NOT_NULL, FACT_SPLIT_SEQUENCE, FACT_INHERITED, FACT_HIDDEN, FACT_USER };

static void check_storage(struct check *check, const PGresult *facts)
{
    const struct table *table = check->table;
    if (query_bool(facts, 0, FACT_UNLOGGED))
        finding_mend(findings_add(check->findings, FINDING_ERROR, "%s is unlogged: a crash of the server empties it",
                                  table->plain_name),
                     "alter table %s set logged;", table->name_sql);
    if (!query_bool(facts, 0, FACT_ID_NOT_NULL))
        finding_mend(findings_add(check->findings, FINDING_ERROR,
                                  "%s of %s may be null: such an event could not be delivered in order or deleted",
                                  table->id_sql, table->plain_name),
                     "alter table %s alter column %s set not null;", table->name_sql, table->id_sql);
    const char *partition = query_text(facts, 0, FACT_SPLIT_SEQUENCE);
    if (partition)
        finding_mend(
            findings_add(
                check->findings, FINDING_ERROR,
                "partition %s of %s draws %s from a default of its own: ids of several sequences are in no order",
                partition, table->plain_name, table->id_sql),
            "alter table %s alter column %s drop default;", partition, table->id_sql);
    if (query_bool(facts, 0, FACT_INHERITED))
        findings_add(
            check->findings, FINDING_WARNING,
            "%s has children by inheritance: nothing keeps an id from being used again there, and events are deleted "
            "by id",
            table->plain_name);
    if (query_bool(facts, 0, FACT_HIDDEN))
        finding_mend(findings_add(check->findings, FINDING_ERROR,
                                  "row-level security on %s may hide rows from %s: they would never be delivered",
                                  table->plain_name, PQuser(check->conn)),
                     "create policy pgcourier on %s to %s using (true);", table->name_sql,
                     query_text(facts, 0, FACT_USER));
}

/* Without the index a claim sorts, or reads a whole key to find its head; and without any on the key, one may be longer
 * than the index of what waits takes. */
static void check_key_index(struct check *check, bool partitioned)
{
    const struct table *table = check->table;
    if (!table->key_sql || table->index_key_id || table->key_attnum == table->id_attnum)
        return;
    const char *more = !table->index_key && table->key_type == KEY_TEXT
                           ? ", and refuse keys of more than 2600 bytes, which cannot wait"
                           : "";
    struct finding *finding = findings_add(
        check->findings, FINDING_WARNING,
        table->index_key ? "%s has an index on %s but none on (%s, %s): a key with many events is slow to claim%s"
                         : "%s has no index on %s: each claim reads the table to find the events of its keys; one "
                           "on (%s, %s) would do%s",
        table->plain_name, table->key_sql, table->key_sql, table->id_sql, more);
    finding_mend(finding, "create index %son %s (%s, %s);", partitioned ? "" : "concurrently ", table->name_sql,
                 table->key_sql, table->id_sql);
}

static void check_priority_index(struct check *check, bool partitioned)
{
    const struct table *table = check->table;
    if (!table->priority_sql || table->index_priority)
        return;
    finding_mend(
        findings_add(
            check->findings, FINDING_WARNING,
            "%s has no index on (%s desc, %s): each claim with a backlog reads and sorts the table to find what is "
            "most urgent",
            table->plain_name, table->priority_sql, table->id_sql),
        "create index %son %s (%s desc, %s);", partitioned ? "" : "concurrently ", table->name_sql, table->priority_sql,
        table->id_sql);
}

/* Rows that are one key to the database's locks would be several keys to a relay. */
static void check_key_collation(struct check *check)
{
    const struct table *table = check->table;
    if (table->key_loose)
        finding_mend(
            findings_add(
                check->findings, FINDING_ERROR,
                "%s of %s has a nondeterministic collation: texts that differ are the same key there, and a relay "
                "would deliver them at once",
                table->key_sql, table->plain_name),
            "alter table %s alter column %s type text collate \"C\";", table->name_sql, table->key_sql);
}

static bool check_deletes(struct check *check, struct error *err)
{
    PGresult *result = ask(check, sql_table_deletes, 1, (const char *const[]){check->oid}, err);
    if (!result)
        return false;
    for (int row = 0; row < PQntuples(result); row++) {
        const char *remedy = query_text(result, row, 3);
        finding_mend(findings_add(check->findings, query_bool(result, row, 0) ? FINDING_ERROR : FINDING_WARNING,
                                  "%s %s", query_text(result, row, 1), query_text(result, row, 2)),
                     "%s", remedy ? remedy : "");
    }
    PQclear(result);
    return true;
}

static bool check_table(struct check *check, struct error *err)
{
    PGresult *facts = ask(check, sql_table_facts, 2, (const char *const[]){check->oid, check->id_attnum}, err);
    if (!facts)
        return false;
    PGresult *indexes =
        ask(check, sql_table_indexes, 4,
            (const char *const[]){check->oid, check->id_attnum, check->key_attnum, check->priority_attnum}, err);
    if (indexes) {
        check_storage(check, facts);
        check_unique_id(check, query_bool(facts, 0, FACT_PARTITIONED), query_bool(indexes, 0, 3));
        check_key_index(check, query_bool(facts, 0, FACT_PARTITIONED));
        check_priority_index(check, query_bool(facts, 0, FACT_PARTITIONED));
        check_key_collation(check);
    }
    PQclear(indexes);
    PQclear(facts);
    return indexes != NULL;
}

/* Order is commit order only while ids are drawn one at a time, upwards, once. */
static bool check_sequence(struct check *check, struct error *err)
{
    PGresult *result = ask(check, sql_table_sequence, 2, (const char *const[]){check->oid, check->id_attnum}, err);
    if (!result)
        return false;
    const char *name = PQntuples(result) ? query_text(result, 0, 0) : NULL;
    if (name && query_int(result, 0, 2) > 1)
        finding_mend(findings_add(check->findings, FINDING_ERROR,
                                  "sequence %s has cache %" PRId64
                                  ": each session draws ids in advance, so a later event gets a smaller id",
                                  name, query_int(result, 0, 2)),
                     "alter sequence %s cache 1;", name);
    if (name && query_int(result, 0, 3) < 0)
        findings_add(check->findings, FINDING_ERROR, "sequence %s counts down: later events would be delivered first",
                     name);
    if (name && query_int(result, 0, 3) > 1)
        finding_mend(
            findings_add(check->findings, FINDING_WARNING,
                         "sequence %s counts in steps of %" PRId64
                         ": if a pooled (hi/lo) generator hands out the ids between, a later event gets a smaller id",
                         name, query_int(result, 0, 3)),
            "alter sequence %s increment 1;", name);
    if (name && !query_bool(result, 0, 1))
        finding_mend(
            findings_add(
                check->findings, FINDING_WARNING,
                "%s may not read sequence %s: how far the ids go is then asked of the table, which sees late events "
                "later",
                PQuser(check->conn), name),
            "grant select on sequence %s to \"%s\";", name, PQuser(check->conn));
    if (name && query_bool(result, 0, 4))
        finding_mend(findings_add(check->findings, FINDING_ERROR,
                                  "sequence %s starts again at its end: new events would go before old ones", name),
                     "alter sequence %s no cycle;", name);
    PQclear(result);
    return true;
}

/* They need not be one table: a partition is also read through the table that it is a part of. */
static bool overlap(PGconn *conn, const struct table *table, const struct table *other, bool *ret, struct error *err)
{
    char oids[2][16];
    snprintf(oids[0], sizeof oids[0], "%u", table->oid);
    snprintf(oids[1], sizeof oids[1], "%u", other->oid);
    PGresult *common =
        query_in_time(conn, table->plain_name, sql_table_overlap, 2, (const char *const[]){oids[0], oids[1]}, err);
    if (!common)
        return false;
    *ret = PQntuples(common) > 0;
    PQclear(common);
    return true;
}

bool table_check_shared(PGconn *conn, const struct queue_config *queue, const struct table *table,
                        const struct queue_config *other, const struct table *other_table, struct error *err)
{
    bool shared;
    if (!overlap(conn, table, other_table, &shared, err))
        return false;
    if (!shared)
        return true;
    const char *rows_of = table->oid == other_table->oid ? "" : "rows of ";
    if (!queue->where || !other->where)
        return error_set(
            err, ERROR_CONFIG,
            "%s: queue \"%s\" already reads %s%s; give each of the two a \"where\" that leaves the other's rows "
            "alone",
            queue->place, other->name, rows_of, table->plain_name);
    return table->lock_class == other_table->lock_class ||
           error_set(err, ERROR_CONFIG,
                     "%s: queue \"%s\" reads %s%s with another lock class; give both the same, or one key could be "
                     "delivered by both at once",
                     queue->place, other->name, rows_of, table->plain_name);
}

/* Only speed: four times a second the relay looks for what has become due. */
static bool check_delays(struct check *check, struct error *err)
{
    const struct table *table = check->table;
    if (!table->not_before_sql || check->queue->delayed == DELAYED_HOLD)
        return true;
    char attnum[16];
    snprintf(attnum, sizeof attnum, "%d", table->not_before_attnum);
    PGresult *result = ask(check, sql_table_delays, 2, (const char *const[]){check->oid, attnum}, err);
    if (!result)
        return false;
    if (!query_bool(result, 0, 0))
        finding_mend(
            findings_add(check->findings, FINDING_WARNING,
                         "%s has no index on %s: with delayed: pass, what becomes due is looked for in the whole table",
                         table->plain_name, table->not_before_sql),
            "create index concurrently on %s (%s) where %s is not null;", table->name_sql, table->not_before_sql,
            table->not_before_sql);
    PQclear(result);
    return true;
}

/* Only the database knows what zones there are. */
static bool check_window(struct check *check, struct error *err)
{
    const struct queue_config *queue = check->queue;
    if (!queue->window)
        return true;
    struct error refusal;
    const char *params[] = {queue->window, queue->window_zone};
    PGresult *result = query_in_time(check->conn, "window_zone", sql_window_look, 2, params, &refusal);
    PQclear(result);
    if (result)
        return true;
    error_prefix(&refusal, "%s", queue->place);
    return findings_add_refusal(check->findings, check->conn, &refusal, "select name from pg_timezone_names;", err);
}

/* A relay deletes, and whoever puts dead letters back inserts. */
static bool check_triggers(struct check *check, struct error *err)
{
    return check->queue->state ||
           name_check_triggers(check->conn, check->table, NAME_CHECK_INSERT | NAME_CHECK_DELETE, check->findings, err);
}

/* Nothing is asked that an earlier finding says cannot be answered. */
static bool check_workers(struct check *check, struct error *err)
{
    if (check->queue->state || check->findings->errors > 0)
        return true;
    char lock_class[16], not_before[16], after[16], attempts[24];
    snprintf(attempts, sizeof attempts, "%" PRId64, check->queue->retry_attempts);
    snprintf(lock_class, sizeof lock_class, "%d", (int)check->table->lock_class);
    snprintf(not_before, sizeof not_before, "%d", check->table->not_before_attnum);
    snprintf(after, sizeof after, "%d", check->table->after_attnum);
    const char *delayed = check->queue->delayed == DELAYED_PASS ? "pass" : "hold";
    const char *params[] = {check->queue->name,
                            check->oid,
                            check->id_attnum,
                            check->key_attnum,
                            check->queue->where,
                            lock_class,
                            not_before,
                            delayed,
                            locks_rows(check->queue) ? "true" : "false",
                            check->queue->then,
                            check->queue->then_payload == THEN_RESPONSE ? "response" : "event",
                            after,
                            check->priority_attnum,
                            check->queue->after == AFTER_ARCHIVE ? "archive" : "delete",
                            attempts,
                            check->queue->on_exhausted == ON_EXHAUSTED_PARK ? "park" : "dead_letter"};
    PGresult *result = ask(check, sql_table_queue, sizeof params / sizeof params[0], params, err);
    if (!result)
        return false;
    for (int row = 0; row < PQntuples(result); row++)
        finding_mend(findings_add(check->findings,
                                  strcmp(query_text(result, row, 2), "error") == 0 ? FINDING_ERROR : FINDING_WARNING,
                                  "%s", query_text(result, row, 0)),
                     "%s", query_text(result, row, 1));
    PQclear(result);
    return true;
}

bool table_check(PGconn *conn, const struct queue_config *queue, const struct table *table, struct findings *ret,
                 struct error *err)
{
    struct check check = {.conn = conn, .queue = queue, .table = table, .findings = ret};
    *ret = (struct findings){0};
    snprintf(check.oid, sizeof check.oid, "%u", table->oid);
    snprintf(check.id_attnum, sizeof check.id_attnum, "%d", table->id_attnum);
    snprintf(check.key_attnum, sizeof check.key_attnum, "%d", table->key_attnum);
    snprintf(check.priority_attnum, sizeof check.priority_attnum, "%d", table->priority_attnum);
    return check_server(&check, err) && check_privileges(&check, err) && check_table(&check, err) &&
           check_deletes(&check, err) && check_sequence(&check, err) &&
           name_check_condition(conn, queue, table, ret, err) && check_delays(&check, err) &&
           check_window(&check, err) && check_triggers(&check, err) && check_workers(&check, err) &&
           (!table->next || next_check(conn, queue, table, ret, err));
}
