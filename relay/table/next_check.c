#include "relay/table/next_check.h"

#include "relay/postgres/query.h"
#include "relay/table/name_check.h"
#include "relay/table/table_sql.h"
#include "sql_text.h"

#include <stdio.h>
#include <stdlib.h>

/* One check under way. */
struct check {
    PGconn *conn;
    const struct queue_config *queue;
    const struct table *table, *next;
    const struct sql_variable *variables;
    struct findings *findings;
};

/* The two tables side by side: whatever goes on from a column of one to a column of the other. */
static void check_columns(struct check *check)
{
    const struct table *table = check->table, *next = check->next;
    bool goes_on = next->payload_sql || (table_sent_key(table) && table_sent_key(next)) ||
                   (table->type_sql && next->type_sql) || (table->headers_sql && next->headers_sql) ||
                   (table->traceparent_sql && next->traceparent_sql);
    if (!goes_on)
        findings_add(check->findings, FINDING_ERROR,
                     "%s: nothing would go on to queue \"%s\"; map columns of %s there, its payload at least",
                     check->queue->place, check->queue->then, next->plain_name);
    else if (table->payload_sql && !next->payload_sql)
        findings_add(check->findings, FINDING_WARNING,
                     "payloads do not go on to queue \"%s\", which maps no column for them", check->queue->then);
    if (table_sent_key(table) && !table_sent_key(next))
        findings_add(check->findings, FINDING_WARNING,
                     "keys do not go on to queue \"%s\", which maps no column for them: its events have no order",
                     check->queue->then);
    if (table->oid == next->oid)
        findings_add(
            check->findings, FINDING_WARNING,
            "queue \"%s\" is over the same table: what goes on must not be this queue's again by its \"where\", "
            "or it goes round for ever",
            check->queue->then);
}

static PGresult *ask(struct check *check, const char *template, struct error *err)
{
    char *sql = sql_render(template, check->variables, err);
    if (!sql)
        return NULL; /* LCOV_EXCL_LINE */
    char oid[16];
    snprintf(oid, sizeof oid, "%u", check->next->oid);
    bool wants = template == sql_table_next_wants;
    int count = wants ? 1 : check->queue->then_payload == THEN_RESPONSE ? 3 : 2;
    const char *params[] = {wants ? oid : NULL, NULL, NULL};
    PGresult *result = query_in_time(check->conn, "then", sql, count, params, err);
    free(sql);
    return result;
}

static bool check_wants(struct check *check, struct error *err)
{
    PGresult *result = ask(check, sql_table_next_wants, err);
    if (!result)
        return false;
    for (int row = 0; row < PQntuples(result); row++) {
        finding_mend(findings_add(check->findings, FINDING_ERROR, "%s", query_text(result, row, 0)), "%s",
                     query_text(result, row, 1));
        check->findings->denied += query_bool(result, row, 2);
    }
    PQclear(result);
    return true;
}

/* The database compares, by planning the statement. */
static bool check_fits(struct check *check, struct error *err)
{
    struct error refusal;
    PGresult *result = ask(check, sql_table_next_fits, &refusal);
    PQclear(result);
    if (result)
        return true;
    error_prefix(&refusal, "%s: what goes on to queue \"%s\" does not fit %s", check->queue->place, check->queue->then,
                 check->next->plain_name);
    return findings_add_refusal(check->findings, check->conn, &refusal, "", err);
}

bool next_check(PGconn *conn, const struct queue_config *queue, const struct table *table, struct findings *findings,
                struct error *err)
{
    struct arena *arena = arena_new();
    struct check check = {.conn = conn,
                          .queue = queue,
                          .table = table,
                          .next = table->next,
                          .variables = table_variables(table, queue, arena),
                          .findings = findings};
    size_t errors = findings->errors;
    check_columns(&check);
    /* Nothing is asked that a finding of these says cannot be answered. */
    bool ok = findings_add_missing(findings, conn, table->next->oid, "{hand on}", err) && check_wants(&check, err) &&
              (findings->errors > errors || check_fits(&check, err)) &&
              name_check_triggers(conn, table->next, NAME_CHECK_INSERT, findings, err);
    arena_free(arena);
    return ok;
}
