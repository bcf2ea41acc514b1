#include "ordering/lease_sql.h"

#include "sql_text.h"

#include <stdlib.h>

bool lease_sql_init(struct lease_sql *ret, const struct ordering_options *options, struct error *err)
{
    *ret = (struct lease_sql){.queue = options->queue,
                              .owner = options->lease_owner,
                              .lock_class = options->lock_class,
                              .term_us = options->lease_us};
    return ret->term_us == 0 || ((ret->grant = sql_render(sql_lease_grant, options->variables, err)) &&
                                 (ret->renew = sql_render(sql_lease_renew, options->variables, err)));
}

void lease_sql_done(struct lease_sql *sql)
{
    free(sql->grant);
    free(sql->renew);
}

struct statement lease_sql_grant(const struct lease_sql *sql, const struct lease_list *list, int backend_pid,
                                 struct arena *arena)
{
    struct statement st = statement_of(sql->grant);
    statement_add_text(&st, sql->queue);
    statement_add_texts(&st, arena, list->keys, list->count);
    statement_add_ids(&st, arena, list->ids, list->count);
    statement_add_ids(&st, arena, list->failures, list->count);
    statement_add_texts(&st, arena, list->tokens, list->count);
    statement_add_text(&st, sql->owner);
    statement_add_int(&st, arena, sql->term_us);
    statement_add_int(&st, arena, backend_pid);
    return st;
}

struct statement lease_sql_renew(const struct lease_sql *sql, const struct span *tokens, size_t count, int backend_pid,
                                 struct arena *arena)
{
    struct statement st = statement_of(sql->renew);
    statement_add_texts(&st, arena, tokens, count);
    statement_add_int(&st, arena, sql->lock_class);
    statement_add_int(&st, arena, sql->term_us);
    statement_add_int(&st, arena, backend_pid);
    return st;
}
