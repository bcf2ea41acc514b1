/* relay/base/lookup.h -- the addresses of a host name, without waiting for them.
 *
 * getaddrinfo(3) waits for name servers, for half a minute where none answers, and cannot be called back. So it runs on
 * a thread of its own, which tells the loop by a descriptor. One that hangs is left alone: its memory is its own then,
 * and it ends when getaddrinfo() returns, or with the process.
 *
 *   lookup_is_needed -> lookup_start -> (lookup_prepare -> poll(2) -> lookup_is_done)* -> lookup_count, lookup_address
 *   -> lookup_free */
#pragma once

#include "relay/base/pollset.h"

#include <stddef.h>

#define LOOKUP_ADDRESSES_MAX 32

/* What is done was for an attempt that did not wait for it. One that comes later than this asks for the name anew. */
#define LOOKUP_AGE_MAX_US MINUTE_US

struct lookup;

/* False for an address in figures: to make one of it waits for nobody. */
bool lookup_is_needed(const char *name);

/* `name` is copied. NULL and *err when there is no thread or no descriptor to be had. */
struct lookup *lookup_start(const char *name, struct error *err) MUST_CHECK;
void lookup_free(struct lookup *lookup); /* at any time; NULL is a no-op */

const char *lookup_name(const struct lookup *lookup);

void lookup_prepare(const struct lookup *lookup, struct pollset *ps);
bool lookup_is_done(struct lookup *lookup);

/* Of one that is done: how many addresses it found, those for streams, in the system's order; LOOKUP_ADDRESSES_MAX at
 * most. 0 and *err, which tells the name, when there is none. */
size_t lookup_count(const struct lookup *lookup, struct error *err);
const char *lookup_address(const struct lookup *lookup, size_t index); /* in figures; the lookup's own */
