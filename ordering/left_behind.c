#include "ordering/left_behind.h"

#include "ordering/id_range.h"

#include <stdlib.h>
#include <string.h>

void left_behind_clear(struct left_behind *left)
{
    for (size_t i = 0; i < left->count; i++)
        free(left->events[i].key);
    left->count = 0;
}

void left_behind_add(struct left_behind *left, const char *key, int64_t id)
{
    for (size_t i = 0; key && i < left->count; i++)
        if (left->events[i].key && strcmp(left->events[i].key, key) == 0) {
            if (id < left->events[i].id)
                left->events[i].id = id;
            return;
        }
    if (left->count < LEFT_BEHIND_MAX)
        left->events[left->count++] = (struct left_behind_event){memory_text(key), id};
}

void left_behind_move(struct left_behind *left, const int64_t *ids, size_t count)
{
    size_t kept = 0;
    for (size_t i = 0; i < left->count; i++) {
        struct left_behind_event event = left->events[i];
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

bool left_behind_has(const struct left_behind *left, struct span key, int64_t id)
{
    for (size_t i = 0; i < left->count; i++) {
        const struct left_behind_event *event = &left->events[i];
        if (event->key ? event->id <= id && span_equal(key, (struct span){event->key, strlen(event->key)})
                       : event->id == id && key.size == 0)
            return true;
    }
    return false;
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
        keys[i] = span_of(left->events[i].key);
        ids[i] = left->events[i].id;
    }
    statement_add_texts(st, arena, keys, left->count);
    statement_add_ids(st, arena, ids, left->count);
}
