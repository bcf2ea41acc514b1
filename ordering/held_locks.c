#include "ordering/held_locks.h"

#include "sql_text.h"

#include <stdlib.h>

bool held_locks_init(struct held_locks *held, const struct ordering_options *options, struct error *err)
{
    held->lock_class = options->lock_class;
    return (held->lock_sql = sql_render(sql_session_lock, options->variables, err)) &&
           (held->unlock_sql = sql_render(sql_session_unlock, options->variables, err));
}

void held_locks_done(struct held_locks *held)
{
    free(held->lock_sql);
    free(held->unlock_sql);
}

struct statement held_locks_hold(const struct held_locks *held, const struct key_list *list, bool keep,
                                 struct arena *arena)
{
    struct statement st = statement_of(keep ? held->lock_sql : held->unlock_sql);
    statement_add_int(&st, arena, held->lock_class);
    statement_add_texts(&st, arena, list->keys, list->key_count);
    statement_add_ids(&st, arena, list->keyless_ids, list->keyless_count);
    return st;
}
