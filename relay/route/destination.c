#include "relay/route/destination.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PARTS_MAX 32

enum part_kind { PART_TEXT, PART_KEY, PART_TYPE, PART_ID, PART_COLUMN };

struct part {
    enum part_kind kind;
    struct span text; /* PART_TEXT: the text; else the name, for messages */
    size_t column;
};

struct route {
    char *template; /* the parts point into it */
    struct part parts[PARTS_MAX];
    size_t count;
    bool is_static;
    struct span fixed; /* when static: the destination */
};

void route_free(struct route *route)
{
    if (!route)
        return;
    free((char *)route->fixed.data);
    free(route->template);
    free(route);
}

static bool name_part(struct route *route, struct part *part, const char *const *extra, size_t extra_count,
                      struct error *err)
{
    route->is_static = false;
    static const struct {
        const char *name;
        enum part_kind kind;
    } fixed[] = {{"key", PART_KEY}, {"type", PART_TYPE}, {"id", PART_ID}};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        if (span_equal(part->text, span_of(fixed[i].name))) {
            part->kind = fixed[i].kind;
            return true;
        }
    for (size_t i = 0; i < extra_count; i++)
        if (span_equal(part->text, span_of(extra[i]))) {
            part->kind = PART_COLUMN;
            part->column = i;
            return true;
        }
    return error_set(err, ERROR_CONFIG, "destination: {%.*s} is not key, type, id or a column of the table",
                     (int)part->text.size, part->text.data);
}

/* Reads one part at `p`; NULL and *err when there is none. */
static const char *part_read(const char *p, struct part *ret, struct error *err)
{
    if (*p == '{' && p[1] != '{') {
        size_t size = strcspn(p + 1, "{}");
        if (p[1 + size] != '}' || size == 0) {
            error_set(err, ERROR_CONFIG, "destination: \"%s\" has no closing brace; write {{ for a brace", p);
            return NULL;
        }
        *ret = (struct part){.kind = PART_COLUMN, .text = {p + 1, size}};
        return p + size + 2;
    }
    if (*p == '}' && p[1] != '}') {
        error_set(err, ERROR_CONFIG, "destination: \"%s\" has no opening brace; write }} for a brace", p);
        return NULL;
    }
    size_t doubled = *p == '{' || *p == '}' ? 1 : 0;
    size_t size = doubled ? 1 : strcspn(p, "{}");
    *ret = (struct part){.kind = PART_TEXT, .text = {p, size}};
    return p + size + doubled;
}

static void join_texts(struct route *route)
{
    char *fixed = memory_new(strlen(route->template) + 1), *end = fixed;
    for (size_t i = 0; i < route->count; i++)
        end = mempcpy(end, route->parts[i].text.data, route->parts[i].text.size);
    route->fixed = (struct span){fixed, (size_t)(end - fixed)};
}

struct route *route_new(const char *template, const char *const *extra, size_t extra_count, struct error *err)
{
    struct route *route = memory_new(sizeof *route);
    route->template = memory_text(template ? template : "");
    route->is_static = true;
    for (const char *p = route->template; *p;) {
        struct part *part = &route->parts[route->count];
        p = part_read(p, part, err);
        bool ok = p && (part->kind == PART_TEXT || name_part(route, part, extra, extra_count, err));
        if (ok && ++route->count == PARTS_MAX)
            ok = error_set(err, ERROR_CONFIG, "destination: more than %d parts", PARTS_MAX - 1);
        if (!ok) {
            route_free(route);
            return NULL;
        }
    }
    if (route->is_static)
        join_texts(route);
    return route;
}

struct span route_static(const struct route *route)
{
    if (!route->is_static)
        return (struct span){NULL, 0};
    return route->fixed;
}

static struct span part_value(const struct part *part, const struct event *event, const char *id)
{
    switch (part->kind) {
    case PART_TEXT:
        return part->text;
    case PART_KEY:
        return event->key;
    case PART_TYPE:
        return event->type;
    case PART_ID:
        return span_of(id);
    case PART_COLUMN:
        break;
    }
    return event->columns[part->column];
}

bool route_event(const struct route *route, const struct event *event, struct arena *arena, struct span *ret,
                 struct error *err)
{
    if (route->is_static) {
        *ret = route->fixed;
        return true;
    }
    char id[24];
    snprintf(id, sizeof id, "%" PRId64, event->id);
    size_t size = 0;
    for (size_t i = 0; i < route->count; i++) {
        struct span value = part_value(&route->parts[i], event, id);
        if (!value.data)
            return error_set(err, ERROR_REFUSED, "destination: {%.*s} is NULL in this event",
                             (int)route->parts[i].text.size, route->parts[i].text.data);
        size += value.size;
    }
    char *text = arena_alloc(arena, size + 1), *p = text;
    for (size_t i = 0; i < route->count; i++) {
        struct span value = part_value(&route->parts[i], event, id);
        memcpy(p, value.data, value.size);
        p += value.size;
    }
    *ret = (struct span){text, size};
    return true;
}
