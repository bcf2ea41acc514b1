/* relay/base/arena.h -- memory that lives and dies together.
 *
 *   arena_new -> arena_alloc ... -> arena_free
 *
 * One arena holds one batch of claimed events and everything made for them. Nothing in it is freed
 * alone. Running out of memory ends the process (exit 70 with one line): a relay that cannot hold one
 * bounded batch cannot go on, and to the table a dead relay is the same as a killed one. */
#pragma once

#include "relay/base/error.h"
#include "relay/base/span.h"

#include <stddef.h>

struct arena;

struct arena *arena_new(void);
void arena_free(struct arena *arena); /* NULL is a no-op */
void arena_wipe(struct arena *arena); /* overwrites all that is in it */

/* Zeroed, aligned for any type. Never NULL. */
void *arena_alloc(struct arena *arena, size_t bytes);
void *arena_array(struct arena *arena, size_t count, size_t size); /* checked multiplication */

/* A copy with a NUL after it, for C interfaces that want one. Absent stays absent. */
struct span arena_copy(struct arena *arena, struct span bytes);
char *arena_printf(struct arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);

size_t arena_bytes(const struct arena *arena); /* taken from the system so far */

/* malloc and friends for _new and _open functions: zeroed, checked, never NULL. */
void *memory_new(size_t bytes);
void *memory_array(size_t count, size_t size);
void *memory_resize(void *old, size_t count, size_t size); /* new part not zeroed */
char *memory_text(const char *text);                       /* strdup; NULL stays NULL */
void memory_wipe(char *text);                              /* free(), and what it held is gone; NULL is a no-op */
