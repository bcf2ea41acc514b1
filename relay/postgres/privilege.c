#include "relay/postgres/privilege.h"

#include "relay/postgres/query.h"
#include "sql_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MISSING_TEXT, MISSING_REMEDY };

PGresult *privilege_missing(PGconn *conn, unsigned table_oid, const char *works, struct error *err)
{
    char oid[16];
    snprintf(oid, sizeof oid, "%u", table_oid);
    return query_in_time(conn, "rights", sql_table_privileges, 2, (const char *const[]){oid, works}, err);
}

static void add(char *text, size_t size, const char *format, ...) PRINTF_LIKE(3, 4);

static void add(char *text, size_t size, const char *format, ...)
{
    size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    vsnprintf(text + used, size - used, format, args);
    va_end(args);
}

bool privilege_explain(PGconn *conn, unsigned table_oid, const char *works, struct error *err)
{
    struct error unknown; /* the first error is the one to report */
    if (err->kind != ERROR_PERMISSION || PQstatus(conn) != CONNECTION_OK)
        return false;
    PGresult *missing = privilege_missing(conn, table_oid, works, &unknown);
    char what[ERROR_TEXT_MAX] = "", remedy[ERROR_TEXT_MAX] = "";
    for (int row = 0; row < PQntuples(missing); row++) {
        add(what, sizeof what, "%s %s", row ? "," : "", query_text(missing, row, MISSING_TEXT));
        const char *grant = query_text(missing, row, MISSING_REMEDY);
        if (!strstr(remedy, grant))
            add(remedy, sizeof remedy, " %s", grant);
    }
    PQclear(missing);
    /* Of a long list the end is cut; the statements are worth more than the names. */
    return what[0] ? error_set(err, err->kind, "%s; %s%.170s  fix:%s", err->text, PQuser(conn), what, remedy) : false;
}
