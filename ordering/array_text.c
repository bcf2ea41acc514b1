#include "ordering/array_text.h"

bool array_text_next(struct span *rest, struct arena *arena, struct span *ret)
{
    const char *from = rest->data, *end = from + rest->size;
    while (from < end && (*from == '{' || *from == '}' || *from == ',')) /* they are quoted in an element */
        from++;
    if (from == end)
        return false;
    bool quoted = *from == '"';
    from += quoted;
    const char *stop = from;
    while (stop < end && (quoted ? *stop != '"' : *stop != ',' && *stop != '}'))
        stop += *stop == '\\' && end - stop > 1 ? 2 : 1;
    char *copy = arena_alloc(arena, (size_t)(stop - from) + 1), *to = copy;
    while (from < stop) {
        from += *from == '\\' && stop - from > 1;
        *to++ = *from++;
    }
    stop += quoted && stop < end;
    *rest = (struct span){stop, (size_t)(end - stop)};
    *ret = (struct span){copy, (size_t)(to - copy)};
    return true;
}
