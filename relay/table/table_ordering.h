/* relay/table/table_ordering.h -- what a strategy has to know of a table and its queue. */
#pragma once

#include "ordering/ordering.h"
#include "relay/table/table.h"

/* For a strategy without leases: whoever has them adds lease_us and lease_owner. `variables` are the table's
 * (table_sql.h). Borrows from all three. */
struct ordering_options table_ordering_options(const struct table *table, const struct queue_config *queue,
                                               const struct sql_variable *variables);
