/* relay/postgres/privilege.h -- the rights that some work on the database needs, and words for those that are missing.
 *
 * What needs what is the table in sql/table/table_privileges.sql. Blocking; for start-up checks and one-shot commands.
 */
#pragma once

#include "relay/base/error.h"

#include <libpq-fe.h>

/* `works`: names of that table as an array's text, e.g. "{run,archive}". `table_oid`: the queue's table, 0 = none.
 * One row for each object that a right is missing on: what is missing text, the remedy text, whether the work cannot do
 * without it boolean. PQclear() it; NULL and *err on failure. */
PGresult *privilege_missing(PGconn *conn, unsigned table_oid, const char *works, struct error *err) MUST_CHECK;

/* After work failed: to an ERROR_PERMISSION of the server, which does not say what it wanted, this adds the rights that
 * are missing and the statements that grant them. Other errors, and one that no missing right explains, stay as they
 * are. Not inside a transaction. Returns false. */
bool privilege_explain(PGconn *conn, unsigned table_oid, const char *works, struct error *err);
