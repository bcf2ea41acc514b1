#include "sinks/response.h"

struct response *response_new(struct arena *arena, size_t max)
{
    struct response *response = arena_alloc(arena, sizeof *response);
    response->arena = arena;
    response->max = max;
    return response;
}

/* The first piece is most often all of it. */
static void make_room(struct response *response, size_t needed)
{
    size_t doubled = response->room * 2;
    if (doubled > response->max)
        doubled = response->max;
    response->room = needed > doubled ? needed : doubled;
    char *data = arena_alloc(response->arena, response->room);
    if (response->size > 0)
        memcpy(data, response->data, response->size);
    response->data = data;
}

void response_add(struct response *response, struct span bytes)
{
    if (response->cut || bytes.size > response->max - response->size) {
        response->cut = true;
        return;
    }
    size_t needed = response->size + bytes.size;
    if (needed > response->room)
        make_room(response, needed);
    if (bytes.size > 0)
        memcpy(response->data + response->size, bytes.data, bytes.size);
    response->size = needed;
}
