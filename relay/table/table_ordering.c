#include "relay/table/table_ordering.h"

struct ordering_options table_ordering_options(const struct table *table, const struct queue_config *queue,
                                               const struct sql_variable *variables)
{
    return (struct ordering_options){
        .queue = queue->name,
        .variables = variables,
        .lock_class = table->lock_class,
        .payload_kind = table->payload_kind,
        .headers_kind = table->headers_kind,
        .extra_columns = table->extra_count,
        .keys_per_claim = queue->keys_per_claim,
        .oldest_share = queue->oldest_share,
        .archive = queue->after == AFTER_ARCHIVE,
        .hand_on = table->next != NULL,
        .sequence = table->sequence_sql != NULL,
        .places = table->places,
        .key_index = table->index_key_id,
        .delays = table_holds_delayed(table, queue),
        .passes = table_passes_delayed(table, queue),
        .filter = queue->where != NULL,
        .after = table_comes_after(table),
        .priority = table->priority_sql != NULL,
        .lock_rows = queue->locks == LOCKS_ROWS,
    };
}
