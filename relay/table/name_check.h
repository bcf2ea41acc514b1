/* relay/table/name_check.h -- names that our search_path, pg_catalog alone, does not find: in a queue's condition, and
 * in the functions of the triggers that fire in our sessions. Part of table_check(), which see. */
#pragma once

#include "relay/config/config.h"
#include "relay/table/findings.h"
#include "relay/table/table.h"

#include <libpq-fe.h>

/* The condition is planned, not run. */
bool name_check_condition(PGconn *conn, const struct queue_config *queue, const struct table *table,
                          struct findings *findings, struct error *err) MUST_CHECK;

/* What a relay does with a table fires them, or a command that puts events back. */
enum name_check_events { NAME_CHECK_INSERT = 4, NAME_CHECK_DELETE = 8 }; /* as in pg_trigger.tgtype */

bool name_check_triggers(PGconn *conn, const struct table *table, int events, struct findings *findings,
                         struct error *err) MUST_CHECK;
