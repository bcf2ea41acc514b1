#include "relay/queue/order_watch.h"

#include "relay/base/arena.h"

#include <stdlib.h>

#define SLOTS 65536

/* Direct-mapped: a new key takes the place of whatever was there. */
struct order_watch {
    struct {
        uint64_t key_hash;
        int64_t id;
    } slots[SLOTS];
};

struct order_watch *order_watch_new(void)
{
    return memory_new(sizeof(struct order_watch));
}

void order_watch_free(struct order_watch *watch)
{
    free(watch);
}

void order_watch_settled(struct order_watch *watch, uint64_t key_hash, int64_t id)
{
    size_t at = key_hash % SLOTS;
    if (watch->slots[at].key_hash == key_hash && watch->slots[at].id > id)
        return;
    watch->slots[at].key_hash = key_hash;
    watch->slots[at].id = id;
}

bool order_watch_is_late(const struct order_watch *watch, uint64_t key_hash, int64_t id)
{
    size_t at = key_hash % SLOTS;
    return watch->slots[at].key_hash == key_hash && id < watch->slots[at].id;
}
