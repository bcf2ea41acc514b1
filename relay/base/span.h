/* relay/base/span.h -- bytes that somebody else owns. */
#ifndef RELAY_BASE_SPAN_H
#define RELAY_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Not NUL-terminated; may hold NUL bytes. `data` is NULL only for "absent" (SQL NULL). */
struct span {
    const char *data;
    size_t size;
};

#define SPAN_LITERAL(text) ((struct span){(text), sizeof(text) - 1})

static inline struct span span_of(const char *text)
{
    return (struct span){text, text ? strlen(text) : 0};
}

static inline bool span_equal(struct span a, struct span b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, a.size) == 0);
}

#endif
