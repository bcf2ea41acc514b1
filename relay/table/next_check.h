/* relay/table/next_check.h -- does what a queue hands on fit the next queue's table? */
#pragma once

#include "relay/table/table.h"

/* For a table with a `next`. Blocking; false only when a query failed. */
bool next_check(PGconn *conn, const struct queue_config *queue, const struct table *table, struct findings *findings,
                struct error *err) MUST_CHECK;
