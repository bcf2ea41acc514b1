#include "sinks/event_headers.h"

#include "relay/base/arena.h"
#include "relay/base/json_check.h"
#include "relay/base/json_members.h"

#include <stdlib.h>

static size_t count_members(struct json_members members)
{
    struct span name, value;
    size_t count = 0;
    while (json_members_next(&members, &name, &value))
        count++;
    return count;
}

/* Both write to `*to` and move it behind a NUL. */

static bool read_string(struct span string, char **to, struct span *ret)
{
    if (!json_unescape(string, *to, &ret->size))
        return false;
    ret->data = *to;
    *to += ret->size;
    *(*to)++ = '\0';
    return true;
}

static bool read_value(struct span value, char **to, struct span *ret)
{
    if (value.data[0] == '"')
        return read_string(value, to, ret);
    *ret = (struct span){NULL, 0};
    if (value.data[0] == 'n')
        return true;
    *ret = (struct span){*to, json_compact(value, *to)};
    *to += ret->size;
    *(*to)++ = '\0';
    return true;
}

static int by_name_and_place(const void *one, const void *other)
{
    const struct event_header *a = *(struct event_header *const *)one, *b = *(struct event_header *const *)other;
    int order = strcmp(a->name.data, b->name.data);
    return order ? order : (a > b) - (a < b);
}

/* A name may be there twice in json, not in jsonb. */
static void keep_last_of_each_name(struct event_headers *headers)
{
    struct event_header **sorted = memory_array(headers->count, sizeof(struct event_header *));
    for (size_t i = 0; i < headers->count; i++)
        sorted[i] = &headers->list[i];
    qsort(sorted, headers->count, sizeof(struct event_header *), by_name_and_place);
    for (size_t i = 0; i + 1 < headers->count; i++)
        if (strcmp(sorted[i]->name.data, sorted[i + 1]->name.data) == 0)
            sorted[i]->name.data = NULL;
    free(sorted);
    size_t kept = 0;
    for (size_t i = 0; i < headers->count; i++)
        if (headers->list[i].name.data)
            headers->list[kept++] = headers->list[i];
    headers->count = kept;
}

static bool read_all(struct json_members members, struct event_headers *headers, struct error *err)
{
    struct span name, value;
    char *to = headers->bytes;
    for (size_t i = 0; json_members_next(&members, &name, &value); i++) {
        struct event_header *header = &headers->list[i];
        bool good = read_string(name, &to, &header->name) && strlen(header->name.data) == header->name.size;
        if (!good) /* not repeated: it may be anything */
            return error_set(err, ERROR_REFUSED, "headers: the name of entry %zu is no text", i + 1);
        if (!read_value(value, &to, &header->value))
            return error_set(err, ERROR_REFUSED, "headers: the value of entry %zu is no text", i + 1);
    }
    if (headers->count > 1)
        keep_last_of_each_name(headers);
    return true;
}

bool event_headers_read(struct span json, struct event_headers *ret, struct error *err)
{
    struct json_members members;
    if (!json.data) {
        *ret = (struct event_headers){0};
        return true;
    }
    if (!json_check(json, false, err))
        return error_prefix(err, "headers");
    if (!json_members_begin(json, &members))
        return error_set(err, ERROR_REFUSED, "headers: JSON, but not an object");
    struct event_headers headers = {.count = count_members(members)};
    headers.list = memory_array(headers.count, sizeof *headers.list);
    headers.bytes = memory_new(json.size); /* each NUL has the place of a quote, or of what follows a value */
    bool good = read_all(members, &headers, err);
    if (good)
        *ret = headers;
    else
        event_headers_done(&headers);
    return good;
}

void event_headers_done(struct event_headers *headers)
{
    free(headers->list);
    free(headers->bytes);
    *headers = (struct event_headers){0};
}
