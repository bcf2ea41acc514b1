/* tests/fuzz/fuzz.h -- a fuzzer's bytes, cut into what a target needs, and a word for what must hold.
 *
 *   struct fuzz_input in = {data, size};  fuzz_byte, fuzz_int, fuzz_span, fuzz_text ...  FUZZ_CHECK(...)
 *
 * A piece is asked for in a fixed order; when the bytes are used up, every further piece is zero or empty. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include "relay/base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* What libFuzzer calls. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* Where 64 bits must not overflow. */
__extension__ typedef __int128 wide_int;

struct fuzz_input {
    const uint8_t *data;
    size_t size; /* left */
};

static inline unsigned char fuzz_byte(struct fuzz_input *in)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}

/* Eight bytes, little-endian. */
static inline int64_t fuzz_int(struct fuzz_input *in)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)fuzz_byte(in) << (8 * i);
    return (int64_t)value;
}

/* A byte N, then N bytes or what is left; never absent. Borrowed. */
static inline struct span fuzz_span(struct fuzz_input *in)
{
    size_t size = fuzz_byte(in);
    if (size > in->size)
        size = in->size;
    struct span piece = {size ? (const char *)in->data : "", size};
    in->data += size;
    in->size -= size;
    return piece;
}

/* All that is left. Borrowed. */
static inline struct span fuzz_rest(struct fuzz_input *in)
{
    struct span rest = {in->size ? (const char *)in->data : "", in->size};
    in->data += in->size;
    in->size = 0;
    return rest;
}

/* As a C string, up to its first NUL, in memory of exactly its size, so that ASan sees every overrun. free() it. */
static inline char *fuzz_text(struct span bytes)
{
    size_t size = strnlen(bytes.data, bytes.size);
    char *text = memory_new(size + 1);
    memcpy(text, bytes.data, size);
    return text;
}

/* What must hold, whatever the bytes. The text says what does not. */
#define FUZZ_CHECK(condition, ...) ((condition) ? (void)0 : fuzz_fail(#condition, __FILE__, __LINE__, __VA_ARGS__))

static inline _Noreturn void fuzz_fail(const char *condition, const char *file, int line, const char *format, ...)
    PRINTF_LIKE(4, 5);

static inline _Noreturn void fuzz_fail(const char *condition, const char *file, int line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "%s:%d: does not hold: %s: ", file, line, condition);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

/* Every failure has a kind and one line of text. */
static inline void fuzz_check_error(const struct error *err)
{
    FUZZ_CHECK(err->kind != ERROR_NONE, "a failure without a kind");
    FUZZ_CHECK(err->text[0] != '\0', "a failure without a text");
    FUZZ_CHECK(memchr(err->text, '\0', sizeof err->text) != NULL, "a text without an end");
    for (const char *c = err->text; *c; c++)
        FUZZ_CHECK((unsigned char)*c >= ' ' && *c != 0x7f, "control character 0x%02x in \"%s\"", (unsigned char)*c,
                   err->text);
}

#endif
