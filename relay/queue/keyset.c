#include "relay/queue/keyset.h"

#include <stdlib.h>

void keyset_init(struct keyset *set, size_t max)
{
    size_t chains = 1;
    while (chains < max)
        chains *= 2;
    *set =
        (struct keyset){.entries = memory_resize(NULL, max, sizeof *set->entries), /* what is unused is not touched */
                        .max = max,
                        .chains = memory_array(chains, sizeof *set->chains),
                        .mask = chains - 1};
}

void keyset_done(struct keyset *set)
{
    while (set->count > 0)
        keyset_remove(set, set->count - 1);
    free(set->entries);
    free(set->chains);
}

struct keyset_entry *keyset_find(const struct keyset *set, struct span key, uint64_t hash)
{
    if (set->count == 0) /* also one that was never filled */
        return NULL;
    for (unsigned n = set->chains[hash & set->mask]; n != 0; n = set->entries[n - 1].next)
        if (set->entries[n - 1].hash == hash && span_equal(set->entries[n - 1].key, key))
            return &set->entries[n - 1];
    return NULL;
}

bool keyset_put(struct keyset *set, struct span key, uint64_t hash, instant_us at, const void *owner)
{
    struct keyset_entry *entry = keyset_find(set, key, hash);
    if (entry) {
        entry->at = at;
        entry->owner = owner;
        return true;
    }
    if (set->count == set->max)
        return false;
    unsigned *chain = &set->chains[hash & set->mask];
    entry = &set->entries[set->count];
    *entry =
        (struct keyset_entry){.data = memory_new(key.size + 1), .hash = hash, .at = at, .owner = owner, .next = *chain};
    if (key.size > 0)
        memcpy(entry->data, key.data, key.size);
    entry->key = (struct span){entry->data, key.size};
    *chain = (unsigned)++set->count;
    return true;
}

/* The link to this entry: in its chain's beginning or in the entry before it. */
static unsigned *link_to(struct keyset *set, size_t index)
{
    unsigned *link = &set->chains[set->entries[index].hash & set->mask];
    while (*link != index + 1)
        link = &set->entries[*link - 1].next;
    return link;
}

void keyset_remove(struct keyset *set, size_t index)
{
    size_t last = set->count - 1;
    *link_to(set, index) = set->entries[index].next;
    free(set->entries[index].data);
    if (index != last) {
        *link_to(set, last) = (unsigned)index + 1;
        set->entries[index] = set->entries[last];
    }
    set->count = last;
}

void keyset_expire(struct keyset *set, instant_us now)
{
    for (size_t i = set->count; i-- > 0;)
        if (set->entries[i].at <= now)
            keyset_remove(set, i);
}
