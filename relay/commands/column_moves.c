#include "relay/commands/column_moves.h"

#include "relay/base/arena.h"

#include <stdlib.h>
#include <string.h>

/* One more element; where `name` is NULL, one that is NULL. Returns the new text instead of the old. */
static char *add(char *array, const char *name, size_t size)
{
    size_t used = array ? strlen(array) - 1 : 0; /* without its closing brace */
    char *text = memory_resize(array, used + 2 * size + sizeof ",\"\"}NULL", 1), *end = text + used;
    *end++ = used ? ',' : '{';
    if (!name) {
        memcpy(end, "NULL}", sizeof "NULL}");
        return text;
    }
    *end++ = '"';
    for (size_t i = 0; i < size; i++) {
        if (name[i] == '"' || name[i] == '\\')
            *end++ = '\\';
        *end++ = name[i];
    }
    memcpy(end, "\"}", sizeof "\"}");
    return text;
}

bool column_moves_add(struct column_moves *moves, const char *text)
{
    const char *equals = strchr(text, '=');
    if (!equals || strcmp(text, "=") == 0)
        return false;
    const char *to = equals[1] ? equals + 1 : NULL;
    moves->from = add(moves->from, text, (size_t)(equals - text));
    moves->to = add(moves->to, to, to ? strlen(to) : 0);
    return true;
}

void column_moves_done(struct column_moves *moves)
{
    free(moves->from);
    free(moves->to);
    *moves = (struct column_moves){0};
}
