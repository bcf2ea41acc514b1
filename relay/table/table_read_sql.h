/* relay/table/table_read_sql.h -- what is read of a queue's rows, and which rows are its own, as SQL over row e.
 *
 * `guarded`: in a transaction that has named rows that cannot be read, see ordering/guarded_text.h. */
#pragma once

#include "relay/base/arena.h"
#include "relay/table/table.h"

/* The queue's own condition. */
const char *table_own_rows(const struct table *table, const struct queue_config *queue, bool guarded,
                           struct arena *arena);

/* The columns of per_key_read.sql from id on, and what e is joined with for them. */
const char *table_event_columns(const struct table *table, const struct queue_config *queue, bool guarded,
                                struct arena *arena);
const char *table_text_once(const struct table *table, const struct queue_config *queue, bool guarded,
                            struct arena *arena);

/* Of the events that it comes after, a bigint[]. */
const char *table_after_ids(const struct table *table, struct arena *arena);
