#include "relay/table/name_check.h"

#include "relay/base/clock.h"
#include "relay/base/statement.h"
#include "relay/postgres/query.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Says where the name is that was not found. What cannot be asked is left unsaid: the refusal is what counts. */
static void explain_name(PGconn *conn, const char *sql, int64_t position, const struct table *table,
                         struct error *refusal)
{
    struct error ignored;
    char place[24], oid[16];
    snprintf(place, sizeof place, "%" PRId64, position);
    snprintf(oid, sizeof oid, "%u", table->oid);
    PGresult *meant =
        query_in_time(conn, "where", sql_table_filter_name, 3, (const char *const[]){sql, place, oid}, &ignored);
    if (PQntuples(meant) == 1)
        error_set(refusal, refusal->kind, "%s; names are looked up in pg_catalog alone%s%s: write %s", refusal->text,
                  query_bool(meant, 0, 1) ? ", and not in the search_path of " : "",
                  query_bool(meant, 0, 1) ? PQuser(conn) : "", query_text(meant, 0, 2));
    PQclear(meant);
}

static void explain(PGconn *conn, const char *sql, int64_t position, const struct table *table, struct error *refusal)
{
    if (position > 0)
        explain_name(conn, sql, position, table, refusal);
    else if (position < 0)
        error_set(refusal, refusal->kind,
                  "%s; functions of a condition need a search_path of their own (alter function ... set search_path = "
                  "...), or write names with their schema",
                  refusal->text);
}

static bool check_types(PGconn *conn, const struct queue_config *queue, const struct table *table,
                        struct findings *findings, struct error *err)
{
    char oid[16];
    snprintf(oid, sizeof oid, "%u", table->oid);
    PGresult *types =
        query_in_time(conn, "where", sql_table_filter_types, 2, (const char *const[]){oid, queue->where}, err);
    for (int row = 0; types && row < PQntuples(types); row++)
        findings_add(
            findings, FINDING_WARNING,
            "%s: column %s is of type %s, whose operators are not in pg_catalog: in the condition it is compared "
            "as some other type, unless they are written like %s",
            queue->place, query_text(types, row, 0), query_text(types, row, 1), query_text(types, row, 2));
    PQclear(types);
    return types != NULL;
}

bool name_check_condition(PGconn *conn, const struct queue_config *queue, const struct table *table,
                          struct findings *findings, struct error *err)
{
    if (!queue->where)
        return true;
    const struct sql_variable variables[] = {{"table", table->name_sql}, {"where", queue->where}, {NULL, NULL}};
    char *sql = sql_render(sql_table_filter, variables, err);
    if (!sql)
        return false; /* LCOV_EXCL_LINE */
    struct error refusal;
    int64_t position = 0;
    const struct asker asker = {.conn = conn,
                                .what = "where",
                                .stop_fd = -1,
                                .limit_us = QUERY_ANSWER_S * SECOND_US,
                                .ret_position = &position};
    PGresult *result = query_or_cancel(&asker, sql, 0, NULL, &refusal);
    if (!result)
        explain(conn, sql, position, table, &refusal);
    free(sql);
    PQclear(result);
    if (result)
        return check_types(conn, queue, table, findings, err);
    error_prefix(&refusal, "%s: the condition cannot be used on %s", queue->place, table->plain_name);
    return findings_add_refusal(findings, conn, &refusal, "", err);
}

bool name_check_triggers(PGconn *conn, const struct table *table, int events, struct findings *findings,
                         struct error *err)
{
    char oid[16], mask[16];
    snprintf(oid, sizeof oid, "%u", table->oid);
    snprintf(mask, sizeof mask, "%d", events);
    PGresult *triggers =
        query_in_time(conn, table->plain_name, sql_table_triggers, 2, (const char *const[]){oid, mask}, err);
    for (int row = 0; triggers && row < PQntuples(triggers); row++)
        finding_mend(
            findings_add(findings, FINDING_WARNING,
                         "%s calls %s, which has no search_path of its own: in a session of ours it finds nothing but "
                         "what is in pg_catalog, or written with its schema",
                         query_text(triggers, row, 0), query_text(triggers, row, 1)),
            "%s", query_text(triggers, row, 2));
    PQclear(triggers);
    return triggers != NULL;
}
