/* relay/base/span.h -- bytes that somebody else owns. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
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

/* FNV-1a, for hash tables. */
static inline uint64_t span_hash(struct span bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < bytes.size; i++)
        hash = (hash ^ (unsigned char)bytes.data[i]) * UINT64_C(0x100000001b3);
    return hash;
}
