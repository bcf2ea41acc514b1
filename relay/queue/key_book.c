#include "relay/queue/key_book.h"

#include "relay/base/lesser.h"
#include "relay/queue/pace.h"

#define BUSY_ELSEWHERE_US (250 * MS_US)

void key_book_init(struct key_book *book, size_t more_max, size_t down_max)
{
    keyset_init(&book->more, more_max);
    keyset_init(&book->busy_elsewhere, more_max);
    keyset_init(&book->destination_down, down_max);
    keyset_init(&book->destination_down_ids, down_max);
}

void key_book_done(struct key_book *book)
{
    keyset_done(&book->more);
    keyset_done(&book->busy_elsewhere);
    keyset_done(&book->destination_down);
    keyset_done(&book->destination_down_ids);
}

static void look_again(struct queue *queue, int64_t from_id, instant_us now)
{
    queue->ordering->type->released(queue->ordering, from_id, SCAN_ID_MAX, now);
}

void key_book_more(struct queue *queue, struct book_key key, const void *holder, int64_t from_id, instant_us now)
{
    if (!keyset_put(&queue->keys.more, key.key, key.hash, now, holder))
        look_again(queue, from_id, now);
}

void key_book_busy_elsewhere(struct queue *queue, struct book_key key, instant_us now)
{
    if (!keyset_put(&queue->keys.busy_elsewhere, key.key, key.hash, now + BUSY_ELSEWHERE_US, NULL))
        look_again(queue, SCAN_ID_MIN, now);
}

void key_book_turn(struct queue *queue, instant_us now)
{
    struct keyset *busy = &queue->keys.busy_elsewhere;
    keyset_expire(&queue->keys.destination_down, now);
    keyset_expire(&queue->keys.destination_down_ids, now);
    for (size_t i = busy->count; i-- > 0;) {
        const struct keyset_entry *entry = &busy->entries[i];
        if (entry->at > now)
            continue;
        if (!keyset_find(&queue->keys.more, entry->key, entry->hash))
            key_book_more(queue, (struct book_key){entry->key, entry->hash}, NULL, SCAN_ID_MIN, now);
        keyset_remove(busy, i);
    }
}

void key_book_destination_down(struct queue *queue, struct book_key key, int64_t id, instant_us until, instant_us now)
{
    struct span keyless = {(const char *)&id, sizeof id};
    bool noted = key.key.data ? keyset_put(&queue->keys.destination_down, key.key, key.hash, until, NULL)
                              : keyset_put(&queue->keys.destination_down_ids, keyless, span_hash(keyless), until, NULL);
    if (!noted)
        pace_poll_at(&queue->pace, now + lesser(until - now, queue->config->poll_max_us));
}
