#include "relay/keyset.h"

#include <stdlib.h>

void keyset_init(struct keyset *set, size_t max)
{
    *set = (struct keyset){.entries = memory_array(max, sizeof *set->entries), .max = max};
}

void keyset_done(struct keyset *set)
{
    while (set->count > 0)
        keyset_remove(set, set->count - 1);
    free(set->entries);
}

bool keyset_put(struct keyset *set, struct span key, uint64_t hash, instant_us at, const void *owner)
{
    for (size_t i = 0; i < set->count; i++)
        if (set->entries[i].hash == hash && span_equal(set->entries[i].key, key)) {
            set->entries[i].at = at;
            set->entries[i].owner = owner;
            return true;
        }
    if (set->count == set->max)
        return false;
    struct keyset_entry *entry = &set->entries[set->count++];
    entry->data = memory_new(key.size + 1);
    if (key.size > 0)
        memcpy(entry->data, key.data, key.size);
    entry->key = (struct span){entry->data, key.size};
    entry->hash = hash;
    entry->at = at;
    entry->owner = owner;
    entry->count = 0;
    return true;
}

void keyset_remove(struct keyset *set, size_t index)
{
    free(set->entries[index].data);
    set->entries[index] = set->entries[--set->count];
}

void keyset_expire(struct keyset *set, instant_us now)
{
    for (size_t i = set->count; i-- > 0;)
        if (set->entries[i].at <= now)
            keyset_remove(set, i);
}
