#include "relay/postgres/db.h"

#include <stdio.h>
#include <string.h>

const char *db_result_last_words(const PGresult *res)
{
    const char *severity = PQresultErrorField(res, PG_DIAG_SEVERITY_NONLOCALIZED);
    bool last = severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0);
    return last ? PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY) : NULL;
}

/* The row whose lock was waited for, as the first lines of the error's context have it. Nothing else of that is told:
 * it may quote statements, and so rows. */
static void add_row(const PGresult *res, struct error *err)
{
    static const char before[] = "tuple (";
    const char *context = PQresultErrorField(res, PG_DIAG_CONTEXT), *row = context ? strstr(context, before) : NULL;
    unsigned block, place;
    if (row && sscanf(row + strlen(before), "%u,%u)", &block, &place) == 2)
        error_set(err, err->kind, "%s; it waited for the row with ctid (%u,%u)", err->text, block, place);
}

/* The server says only by the function that raises it whether 0A000 is of a plan or of something in a row. */
static bool has_stale_plan(const PGresult *res)
{
    const char *function = PQresultErrorField(res, PG_DIAG_SOURCE_FUNCTION);
    return function && strcmp(function, "RevalidateCachedQuery") == 0;
}

const struct sqlstate_rule *db_result_rule(const PGresult *res, struct error *err)
{
    const char *state = PQresultErrorField(res, PG_DIAG_SQLSTATE);
    const char *text = PQresultErrorField(res, PG_DIAG_MESSAGE_PRIMARY);
    const struct sqlstate_rule *rule = has_stale_plan(res) ? &sqlstate_stale_plan : sqlstate_rule(state);
    error_set(err, rule->kind, "%s (SQLSTATE %s: %s)", text ? text : "no message from the server",
              state ? state : "none", rule->why);
    if (state && (strcmp(state, "55P03") == 0 || strcmp(state, "57014") == 0))
        add_row(res, err);
    return rule;
}
