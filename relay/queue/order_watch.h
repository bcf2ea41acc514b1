/* relay/queue/order_watch.h -- notices producers that break the order of a key.
 *
 * Ids of one key have to be committed in their order. When an event arrives with a smaller id than one of its key that
 * was delivered and settled before, they were not, and the event is late: it is delivered all the same, and
 * counted. A bounded memory of recent keys: it may forget, it does not accuse wrongly (but for a 64-bit collision). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct order_watch;

struct order_watch *order_watch_new(void); /* 1 MB */
void order_watch_free(struct order_watch *watch);

/* Event `id` of the key with this hash has left the table. */
void order_watch_settled(struct order_watch *watch, uint64_t key_hash, int64_t id);

/* A greater id of this key has left the table before. */
bool order_watch_is_late(const struct order_watch *watch, uint64_t key_hash, int64_t id);
