/* ordering/left_behind.h -- events that the horizon's floor has gone past although they are still there.
 *
 * Somebody has one for long: its row or its key is locked, a receiver does not answer. So that it keeps no other key's
 * reads among what is dead, the floor goes past it, and its key is read from it on, wherever the floor is. A relay
 * knows its own; they are few, and when there is no room the floor stays where it is.
 *
 *   {0} -> (left_behind_add -> left_behind_add_to each statement -> left_behind_move)* -> left_behind_clear */
#ifndef ORDERING_LEFT_BEHIND_H
#define ORDERING_LEFT_BEHIND_H

#include "relay/base/statement.h"

#define LEFT_BEHIND_MAX 64

struct left_behind_event {
    char *key;  /* owned; NULL: an event without a key, which stands for itself */
    int64_t id; /* of the key, all events that the floor has passed have this id or a greater one */
};

struct left_behind {
    struct left_behind_event events[LEFT_BEHIND_MAX];
    size_t count;
};

void left_behind_clear(struct left_behind *left);

/* Copies `key`; NULL is none. Does nothing when there is no room. */
void left_behind_add(struct left_behind *left, const char *key, int64_t id);

/* Of the first `count` events those go whose id in `ids` is SCAN_ID_MIN, and the others get that id. */
void left_behind_move(struct left_behind *left, const int64_t *ids, size_t count);

/* Event `id` of this key is one that the floor has passed; an empty key may be none. */
bool left_behind_has(const struct left_behind *left, struct span key, int64_t id);

/* `floor`, or the least id of all when that is less. */
int64_t left_behind_least(const struct left_behind *left, int64_t floor);

/* Two parameters, text[] and bigint[]: keys and ids, in the order of `events`. */
void left_behind_add_to(const struct left_behind *left, struct arena *arena, struct statement *st);

#endif
