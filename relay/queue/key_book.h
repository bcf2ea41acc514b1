/* relay/queue/key_book.h -- the keys that a queue keeps in mind: which to ask for by name, and which to leave out. */
#pragma once

#include "relay/queue/queue.h"

struct book_key {
    struct span key;
    uint64_t hash; /* span_hash(key) */
};

void key_book_init(struct key_book *book, size_t more_max, size_t down_max);
void key_book_done(struct key_book *book);

/* The key has more events, from `from_id` on: claims ask for it by name; only `holder` does, unless that is NULL. Where
 * the book is full, claims look at all ids from there on again. */
void key_book_more(struct queue *queue, struct book_key key, const void *holder, int64_t from_id, instant_us now);

/* The key has more events, but another relay has locked it: claims ask for it after a while. */
void key_book_busy_elsewhere(struct queue *queue, struct book_key key, instant_us now);

/* Once before each claim: what was busy elsewhere or left out may be asked for again when its time has come. */
void key_book_turn(struct queue *queue, instant_us now);

/* No claim takes the key until then, or, of a key without data, the event `id`. Where the book is full, claims that
 * look for what is new wait as well, as long as they may. */
void key_book_destination_down(struct queue *queue, struct book_key key, int64_t id, instant_us until, instant_us now);
