/* relay/base/statement.h -- SQL text from sql/ with its names filled in, and one execution of it.
 *
 * The files in sql/ name tables and columns as psql variables (:table, :id); sql_render() puts the quoted names of
 * one queue in their place, once, at start-up. Values never go that way: they are parameters. */
#pragma once

#include "relay/base/arena.h"
#include "relay/base/error.h"

#include <stdint.h>

struct sql_variable {
    const char *name; /* without the colon; NULL after the last */
    const char *text; /* SQL: already quoted */
};

/* `more` and, behind them, `variables`; in the arena. */
const struct sql_variable *sql_variables_with(const struct sql_variable *variables, const struct sql_variable *more,
                                              struct arena *arena);

/* Replaces every :name outside quotes and drops comments. NULL and *err (ERROR_INTERNAL) for a name that is not in
 * the list. free() the result. */
char *sql_render(const char *template, const struct sql_variable *variables, struct error *err) MUST_CHECK;

#define STATEMENT_PARAMS_MAX 20

/* One execution. Parameters live in the arena they were made in. */
struct statement {
    const char *sql; /* borrowed; outlives the connection it is sent on */
    bool by_row;     /* hand over one row at a time, so that a large result is never held twice */
    int count;
    const char *values[STATEMENT_PARAMS_MAX];
    int lengths[STATEMENT_PARAMS_MAX];
    int formats[STATEMENT_PARAMS_MAX]; /* 0 text, 1 binary */
};

struct statement statement_of(const char *sql);
void statement_add_text(struct statement *st, const char *value); /* borrowed; NULL is SQL NULL */
void statement_add_int(struct statement *st, struct arena *arena, int64_t value);
void statement_add_ids(struct statement *st, struct arena *arena, const int64_t *ids, size_t count);    /* bigint[] */
void statement_add_tids(struct statement *st, struct arena *arena, const uint64_t *tids, size_t count); /* tid[] */
/* text[] and bytea[]; an absent span is a NULL element. */
void statement_add_texts(struct statement *st, struct arena *arena, const struct span *texts, size_t count);
void statement_add_bytes(struct statement *st, struct arena *arena, const struct span *bytes, size_t count);
