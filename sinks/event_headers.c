#include "sinks/event_headers.h"

#include <jansson.h>
#include <stdlib.h>

static struct span entry_value(const json_t *value, struct arena *arena)
{
    if (json_is_null(value))
        return (struct span){NULL, 0};
    if (json_is_string(value))
        return arena_copy(arena, (struct span){json_string_value(value), json_string_length(value)});
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    struct span copy = arena_copy(arena, span_of(text ? text : ""));
    free(text);
    return copy;
}

bool event_headers_parse(struct span json, struct arena *arena, struct event_headers *ret, struct error *err)
{
    if (!json.data) {
        *ret = (struct event_headers){0};
        return true;
    }
    json_error_t why;
    json_t *object = json_loadb(json.data, json.size, JSON_ALLOW_NUL, &why);
    bool ok = false;
    if (!object) {
        /* Not why.text: it quotes the document. */
        error_set(err, ERROR_REFUSED, "headers: not a JSON object (at byte %d)", why.position);
        goto done;
    }
    if (!json_is_object(object)) {
        error_set(err, ERROR_REFUSED, "headers: JSON, but not an object");
        goto done;
    }
    size_t size = json_object_size(object), count = 0;
    size_t own = size - (json_object_get(object, EVENT_HEADER_REPLAYED) != NULL);
    if (own > EVENT_HEADERS_MAX) {
        error_set(err, ERROR_REFUSED, "headers: %zu entries, %d are the most", own, EVENT_HEADERS_MAX);
        goto done;
    }
    struct event_header *list = arena_array(arena, size, sizeof *list);
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        list[count].name = arena_copy(arena, span_of(name));
        list[count++].value = entry_value(value, arena);
    }
    *ret = (struct event_headers){list, count};
    ok = true;
done:
    json_decref(object);
    return ok;
}
