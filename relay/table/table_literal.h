/* relay/table/table_literal.h -- texts and columns as SQL. */
#pragma once

#include "relay/base/arena.h"

/* `'` doubled, and E'' with doubled backslashes when there are any. */
const char *table_literal(struct arena *arena, const char *text);

/* Of row e; `absent` where name_sql is NULL. */
const char *table_column(struct arena *arena, const char *name_sql, const char *absent);
