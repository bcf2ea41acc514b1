#include "relay/base/statement.h"

#include <assert.h>
#include <ctype.h>
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Type OIDs that are fixed for ever (pg_type.dat). */
#define OID_BYTEA 17
#define OID_INT8 20
#define OID_TEXT 25
#define OID_TID 27

struct text {
    char *data;
    size_t size, capacity;
};

static void text_add(struct text *out, const char *data, size_t size)
{
    if (!out->data || out->size + size + 1 > out->capacity) {
        out->capacity = (out->size + size + 1) * 2;
        out->data = memory_resize(out->data, out->capacity, 1);
    }
    memcpy(out->data + out->size, data, size);
    out->size += size;
    out->data[out->size] = '\0';
}

static const char *variable_find(const struct sql_variable *variables, const char *name, size_t size)
{
    for (; variables->name; variables++)
        if (strlen(variables->name) == size && memcmp(variables->name, name, size) == 0)
            return variables->text;
    return NULL;
}

static size_t variables_count(const struct sql_variable *variables)
{
    size_t n = 0;
    while (variables[n].name)
        n++;
    return n;
}

const struct sql_variable *sql_variables_with(const struct sql_variable *variables, const struct sql_variable *more,
                                              struct arena *arena)
{
    size_t first = variables_count(more), count = variables_count(variables);
    struct sql_variable *out = arena_array(arena, first + count + 1, sizeof *out);
    memcpy(out, more, first * sizeof *out);
    memcpy(out + first, variables, count * sizeof *out);
    return out;
}

static size_t name_length(const char *p)
{
    size_t n = 0;
    while (islower((unsigned char)p[n]) || p[n] == '_')
        n++;
    return n;
}

/* How many bytes from `p` on are copied as they are: a quoted piece, a cast's two colons, or one byte. */
static size_t verbatim_length(const char *p)
{
    if (*p == '\'' || *p == '"') {
        const char *end = strchr(p + 1, *p);
        return end ? (size_t)(end - p) + 1 : strlen(p);
    }
    return p[0] == ':' && p[1] == ':' ? 2 : 1;
}

/* Adds what stands for the variable `name`; false when there is no such variable. */
static bool variable_add(struct text *out, const struct sql_variable *variables, const char *name, size_t size)
{
    const char *text = variable_find(variables, name, size);
    if (text)
        text_add(out, text, strlen(text));
    return text;
}

char *sql_render(const char *template, const struct sql_variable *variables, struct error *err)
{
    struct text out = {0};
    for (const char *p = template; *p;) {
        size_t size = verbatim_length(p), name = *p == ':' && size == 1 ? name_length(p + 1) : 0;
        if (p[0] == '-' && p[1] == '-') {
            p += strcspn(p, "\n");
        } else if (name == 0) {
            text_add(&out, p, size);
            p += size;
        } else if (variable_add(&out, variables, p + 1, name)) {
            p += 1 + name;
        } else {
            error_set(err, ERROR_INTERNAL, "no value for :%.*s in a statement", (int)name, p + 1);
            free(out.data);
            return NULL;
        }
    }
    text_add(&out, "", 0);
    return out.data;
}

struct statement statement_of(const char *sql)
{
    return (struct statement){.sql = sql};
}

static void add(struct statement *st, const char *value, size_t length, int format)
{
    assert(st->count < STATEMENT_PARAMS_MAX);
    st->values[st->count] = value;
    st->lengths[st->count] = (int)length;
    st->formats[st->count] = format;
    st->count++;
}

void statement_add_text(struct statement *st, const char *value)
{
    add(st, value, 0, 0);
}

void statement_add_int(struct statement *st, struct arena *arena, int64_t value)
{
    add(st, arena_printf(arena, "%" PRId64, value), 0, 0);
}

static char *put32(char *p, uint32_t value)
{
    value = htobe32(value);
    memcpy(p, &value, sizeof value);
    return p + sizeof value;
}

/* array_recv(): dimensions, has-nulls, element type, then length and lower bound of each dimension. */
static char *array_header(char *p, uint32_t has_null, uint32_t oid, size_t count)
{
    p = put32(p, count ? 1 : 0);
    p = put32(p, has_null);
    p = put32(p, oid);
    if (count) {
        p = put32(p, (uint32_t)count);
        p = put32(p, 1);
    }
    return p;
}

#define ARRAY_HEADER_BYTES 20

void statement_add_ids(struct statement *st, struct arena *arena, const int64_t *ids, size_t count)
{
    char *start = arena_alloc(arena, ARRAY_HEADER_BYTES + count * 12);
    char *p = array_header(start, 0, OID_INT8, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t big = htobe64((uint64_t)ids[i]);
        p = put32(p, 8);
        memcpy(p, &big, sizeof big);
        p += sizeof big;
    }
    add(st, start, (size_t)(p - start), 1);
}

/* As tidrecv() reads them: 32 bits and 16. */
void statement_add_tids(struct statement *st, struct arena *arena, const uint64_t *tids, size_t count)
{
    char *start = arena_alloc(arena, ARRAY_HEADER_BYTES + count * 10);
    char *p = array_header(start, 0, OID_TID, count);
    for (size_t i = 0; i < count; i++) {
        uint64_t big = htobe64(tids[i] << 16);
        p = put32(p, 6);
        memcpy(p, &big, 6);
        p += 6;
    }
    add(st, start, (size_t)(p - start), 1);
}

static void add_spans(struct statement *st, struct arena *arena, uint32_t oid, const struct span *texts, size_t count)
{
    size_t bytes = ARRAY_HEADER_BYTES;
    uint32_t has_null = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += 4 + texts[i].size;
        has_null |= !texts[i].data;
    }
    char *start = arena_alloc(arena, bytes);
    char *p = array_header(start, has_null, oid, count);
    for (size_t i = 0; i < count; i++) {
        p = put32(p, texts[i].data ? (uint32_t)texts[i].size : UINT32_MAX);
        if (texts[i].data) {
            memcpy(p, texts[i].data, texts[i].size);
            p += texts[i].size;
        }
    }
    add(st, start, (size_t)(p - start), 1);
}

void statement_add_texts(struct statement *st, struct arena *arena, const struct span *texts, size_t count)
{
    add_spans(st, arena, OID_TEXT, texts, count);
}

void statement_add_bytes(struct statement *st, struct arena *arena, const struct span *bytes, size_t count)
{
    add_spans(st, arena, OID_BYTEA, bytes, count);
}
