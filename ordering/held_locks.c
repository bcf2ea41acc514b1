#include "ordering/held_locks.h"

#include "sql_text.h"

#include <stdlib.h>

bool held_locks_init(struct held_locks *held, const struct ordering_options *options, struct error *err)
{
    held->lock_class = options->lock_class;
    return (held->keep_sql = sql_render(sql_claim_keep, options->variables, err)) &&
           (held->free_sql = sql_render(sql_claim_free, options->variables, err));
}

void held_locks_done(struct held_locks *held)
{
    free(held->keep_sql);
    free(held->free_sql);
}

struct statement held_locks_hold(const struct held_locks *held, const struct key_list *list, bool keep,
                                 struct arena *arena)
{
    struct statement st = statement_of(keep ? held->keep_sql : held->free_sql);
    statement_add_int(&st, arena, held->lock_class);
    statement_add_texts(&st, arena, list->keys, list->key_count);
    statement_add_ids(&st, arena, list->solos, list->solo_count);
    return st;
}
