#include "relay/table/findings.h"

#include "relay/postgres/privilege.h"
#include "relay/postgres/query.h"

#include <stdarg.h>
#include <stdio.h>

enum { MISSING_TEXT, MISSING_REMEDY, MISSING_NEEDED };

struct finding *findings_add(struct findings *findings, enum finding_level level, const char *format, ...)
{
    struct finding *finding = &findings->list[findings->count < FINDINGS_MAX ? findings->count++ : FINDINGS_MAX - 1];
    *finding = (struct finding){.level = level};
    va_list args;
    va_start(args, format);
    vsnprintf(finding->text, sizeof finding->text, format, args);
    va_end(args);
    findings->errors += level == FINDING_ERROR;
    return finding;
}

bool findings_add_refusal(struct findings *findings, const PGconn *conn, const struct error *refusal,
                          const char *remedy, struct error *err)
{
    if (PQstatus(conn) != CONNECTION_OK)
        return error_set(err, refusal->kind, "%s", refusal->text);
    finding_mend(findings_add(findings, FINDING_ERROR, "%s", refusal->text), "%s", remedy);
    return true;
}

void finding_mend(struct finding *finding, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(finding->remedy, sizeof finding->remedy, format, args);
    va_end(args);
}

bool findings_add_missing(struct findings *findings, PGconn *conn, unsigned table_oid, const char *works,
                          struct error *err)
{
    PGresult *missing = privilege_missing(conn, table_oid, works, err);
    if (!missing)
        return false;
    for (int row = 0; row < PQntuples(missing); row++) {
        bool needed = query_bool(missing, row, MISSING_NEEDED);
        finding_mend(findings_add(findings, needed ? FINDING_ERROR : FINDING_WARNING, "%s %s", PQuser(conn),
                                  query_text(missing, row, MISSING_TEXT)),
                     "%s", query_text(missing, row, MISSING_REMEDY));
        findings->denied += needed;
    }
    PQclear(missing);
    return true;
}

enum error_kind findings_kind(const struct findings *findings)
{
    return findings->denied == findings->errors ? ERROR_PERMISSION : ERROR_CONFIG;
}
