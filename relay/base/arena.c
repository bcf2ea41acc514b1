#include "relay/base/arena.h"

#include "relay/base/fault_point.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK_BYTES ((size_t)64 * 1024)

struct block {
    struct block *next;
    size_t used, size;
    alignas(max_align_t) char data[];
};

struct arena {
    struct block *blocks; /* the first one is being filled */
    size_t bytes;
};

static _Noreturn void out_of_memory(void)
{
    static const char text[] = "pgcourier: out of memory\n";
    ssize_t ignored = write(STDERR_FILENO, text, sizeof text - 1);
    (void)ignored;
    _exit(70);
}

/* All that our code allocates is asked for here, so that a test can refuse each of it. */
static bool is_refused(void)
{
    return FAULT_ERROR("memory.allocate");
}

static size_t checked_product(size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        out_of_memory();
    return bytes;
}

void *memory_new(size_t bytes)
{
    void *p = is_refused() ? NULL : calloc(1, bytes ? bytes : 1);
    if (!p)
        out_of_memory();
    return p;
}

void *memory_array(size_t count, size_t size)
{
    return memory_new(checked_product(count, size));
}

void *memory_resize(void *old, size_t count, size_t size)
{
    size_t bytes = checked_product(count, size);
    void *p = is_refused() ? NULL : realloc(old, bytes ? bytes : 1);
    if (!p)
        out_of_memory();
    return p;
}

char *memory_text(const char *text)
{
    if (!text)
        return NULL;
    size_t size = strlen(text) + 1;
    return memcpy(memory_new(size), text, size);
}

void memory_wipe(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

struct arena *arena_new(void)
{
    return memory_new(sizeof(struct arena));
}

void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    for (struct block *b = arena->blocks, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    free(arena);
}

void arena_wipe(struct arena *arena)
{
    for (struct block *b = arena->blocks; b; b = b->next)
        explicit_bzero(b->data, b->used);
}

static struct block *block_add(struct arena *arena, size_t bytes)
{
    size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES, total;
    if (__builtin_add_overflow(size, sizeof(struct block), &total))
        out_of_memory();
    struct block *b = is_refused() ? NULL : malloc(total);
    if (!b)
        out_of_memory();
    b->used = 0;
    b->size = size;
    arena->bytes += total;
    /* A block made for one large object is full at once: keep filling the one before it. */
    if (arena->blocks && bytes > BLOCK_BYTES) {
        b->next = arena->blocks->next;
        arena->blocks->next = b;
    } else {
        b->next = arena->blocks;
        arena->blocks = b;
    }
    return b;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    size_t align = alignof(max_align_t), rounded;
    if (__builtin_add_overflow(bytes, align - 1, &rounded))
        out_of_memory();
    rounded &= ~(align - 1);
    struct block *b = arena->blocks;
    if (!b || b->size - b->used < rounded)
        b = block_add(arena, rounded);
    void *p = b->data + b->used;
    b->used += rounded;
    return memset(p, 0, rounded);
}

void *arena_array(struct arena *arena, size_t count, size_t size)
{
    return arena_alloc(arena, checked_product(count, size));
}

struct span arena_copy(struct arena *arena, struct span bytes)
{
    if (!bytes.data)
        return bytes;
    char *copy = arena_alloc(arena, bytes.size + 1);
    memcpy(copy, bytes.data, bytes.size);
    return (struct span){copy, bytes.size};
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args, again;
    char small[64]; /* most are numbers: they are formatted once */
    va_start(args, format);
    va_copy(again, args);
    int size = vsnprintf(small, sizeof small, format, args);
    va_end(args);
    char *text = arena_alloc(arena, size < 0 ? 1 : (size_t)size + 1);
    if (size >= (int)sizeof small)
        vsnprintf(text, (size_t)size + 1, format, again);
    else if (size > 0)
        memcpy(text, small, (size_t)size);
    va_end(again);
    return text;
}

size_t arena_bytes(const struct arena *arena)
{
    return arena->bytes;
}
