/* relay/queue/keyset.h -- a bounded set of keys, each with a time and a note. Each operation on one key
 * takes the same time however many keys the set has. */
#pragma once

#include "relay/base/arena.h"
#include "relay/base/clock.h"

struct keyset_entry {
    char *data; /* the set's copy */
    struct span key;
    uint64_t hash;
    instant_us at;
    const void *owner;
    unsigned count; /* the caller's; 0 in a new entry */
    unsigned next;  /* the set's: the entry after this one in its chain, the first is 1; 0: none */
};

struct keyset {
    struct keyset_entry *entries;
    size_t count, max;
    unsigned
        *chains; /* where each begins, in the same way: what is zeroed is empty, and not touched before it is used */
    size_t mask; /* of a hash: the number of its chain */
};

void keyset_init(struct keyset *set, size_t max);
void keyset_done(struct keyset *set);

/* The key's entry, valid until the next keyset_put() or removal; NULL: it is not in the set. `hash` is the same number
 * for one key in all calls. */
struct keyset_entry *keyset_find(const struct keyset *set, struct span key, uint64_t hash);

/* Adds or updates; false when the set is full: the caller must have another way to find the key. */
bool keyset_put(struct keyset *set, struct span key, uint64_t hash, instant_us at, const void *owner) MUST_CHECK;
void keyset_remove(struct keyset *set, size_t index); /* moves the last entry to its place */
void keyset_expire(struct keyset *set, instant_us now);
