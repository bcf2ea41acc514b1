#include "ordering/array_text.h"

bool array_text_next(struct span *rest, struct arena *arena, struct span *ret)
{
    const char *from = rest->data, *end = from + rest->size;
    if (rest->size == 0 || *from == '}')
        return false;
    from++; /* the opening brace, or the comma after the element before */
    if (from == end || *from == '}')
        return false;
    char *copy = arena_alloc(arena, (size_t)(end - from) + 1), *to = copy;
    bool quoted = *from == '"';
    from += quoted;
    while (from < end && (quoted ? *from != '"' : *from != ',' && *from != '}')) {
        from += *from == '\\' && end - from > 1;
        *to++ = *from++;
    }
    from += quoted && from < end;
    *rest = (struct span){from, (size_t)(end - from)};
    *ret = (struct span){copy, (size_t)(to - copy)};
    return true;
}
