/* relay/table/findings.h -- what is wrong with a table, and how to mend it. */
#pragma once

#include "relay/base/error.h"

#include <libpq-fe.h>

enum finding_level { FINDING_WARNING, FINDING_ERROR };

/* One line: what is wrong, why it matters, and the SQL that mends it. */
struct finding {
    enum finding_level level;
    char text[600];
    char remedy[600]; /* a statement ending in ";", or empty */
};

#define FINDINGS_MAX 32

struct findings {
    struct finding list[FINDINGS_MAX];
    size_t count, errors;
    size_t denied; /* of the errors: rights that are missing */
};

/* A list that is full keeps its first findings: one of them stops the relay already, or none would. */
struct finding *findings_add(struct findings *findings, enum finding_level level, const char *format, ...)
    PRINTF_LIKE(3, 4);
/* What the database has against a statement that was only planned, or run for this alone, is a finding, with a
 * remedy as in there or an empty one; a lost connection is a failure, false and *err. */
bool findings_add_refusal(struct findings *findings, const PGconn *conn, const struct error *refusal,
                          const char *remedy, struct error *err) MUST_CHECK;

void finding_mend(struct finding *finding, const char *format, ...) PRINTF_LIKE(2, 3);

/* The rights that these works need (privilege.h) and the user does not have. False only when the query failed. */
bool findings_add_missing(struct findings *findings, PGconn *conn, unsigned table_oid, const char *works,
                          struct error *err) MUST_CHECK;

/* What to end with when there are errors: ERROR_PERMISSION if all of them are missing rights, else ERROR_CONFIG. */
enum error_kind findings_kind(const struct findings *findings);
