#include "relay/table/table_literal.h"

#include <string.h>

const char *table_literal(struct arena *arena, const char *text)
{
    char *out = arena_alloc(arena, strlen(text) * 2 + 4), *p = out;
    if (strchr(text, '\\'))
        *p++ = 'E';
    *p++ = '\'';
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            *p++ = *text;
        *p++ = *text;
    }
    *p = '\'';
    return out;
}

const char *table_column(struct arena *arena, const char *name_sql, const char *absent)
{
    return name_sql ? arena_printf(arena, "e.%s", name_sql) : absent;
}
