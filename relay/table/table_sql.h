/* relay/table/table_sql.h -- a table's names, as the variables of the statements in sql/. */
#pragma once

#include "relay/base/statement.h"
#include "relay/table/table.h"

/* The result and its texts live in `arena`. */
const struct sql_variable *table_variables(const struct table *table, const struct queue_config *queue,
                                           struct arena *arena);

/* For when there are rows that cannot be read: see ordering/guarded_text.h. */
const struct sql_variable *table_guarded_variables(const struct table *table, const struct queue_config *queue,
                                                   struct arena *arena);
