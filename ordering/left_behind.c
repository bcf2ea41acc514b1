#include "ordering/left_behind.h"

#include "ordering/id_range.h"

#include <stdlib.h>
#include <string.h>

static char *copy_text(struct span text)
{
    char *copy = memory_new(text.size + 1);
    memcpy(copy, text.data, text.size);
    return copy;
}

static bool has_key(const struct left_event *event, struct span key)
{
    return event->key && key.data && span_equal(span_of(event->key), key);
}

void left_behind_clear(struct left_behind *left)
{
    for (size_t i = 0; i < left->count; i++)
        free(left->events[i].key);
    left->count = 0;
}

void left_behind_add(struct left_behind *left, struct span key, int64_t id)
{
    for (size_t i = 0; i < left->count; i++)
        if (has_key(&left->events[i], key)) {
            if (id < left->events[i].id)
                left->events[i].id = id;
            return;
        }
    if (left->count < LEFT_BEHIND_MAX)
        left->events[left->count++] = (struct left_event){key.data ? copy_text(key) : NULL, id};
}

void left_behind_move(struct left_behind *left, const int64_t *ids, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < left->count; i++) {
        struct left_event event = left->events[i];
        if (i < count && ids[i] == SCAN_ID_MIN) {
            free(event.key);
            continue;
        }
        if (i < count)
            event.id = ids[i];
        left->events[kept++] = event;
    }
    left->count = kept;
}

int64_t left_behind_least(const struct left_behind *left, int64_t floor)
{
    int64_t least = floor;
    for (size_t i = 0; i < left->count; i++)
        least = left->events[i].id < least ? left->events[i].id : least;
    return least;
}

void left_behind_add_to(const struct left_behind *left, struct arena *arena, struct statement *st)
{
    struct span keys[LEFT_BEHIND_MAX];
    int64_t ids[LEFT_BEHIND_MAX];
    for (size_t i = 0; i < left->count; i++) {
        keys[i] = left->events[i].key ? span_of(left->events[i].key) : (struct span){NULL, 0};
        ids[i] = left->events[i].id;
    }
    statement_add_texts(st, arena, keys, left->count);
    statement_add_ids(st, arena, ids, left->count);
}
