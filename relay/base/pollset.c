#include "relay/base/pollset.h"

#include "relay/base/arena.h"

#include <errno.h>
#include <stdlib.h>

struct pollset {
    struct pollfd *fds; /* one a descriptor; `slot_of` finds it again */
    size_t count, capacity;
    int *slot_of; /* descriptor -> index + 1 in fds, 0 = not in the set */
    size_t slots;
    instant_us deadline;
    int64_t waited_us;
};

struct pollset *pollset_new(void)
{
    struct pollset *ps = memory_new(sizeof *ps);
    ps->deadline = INSTANT_NEVER;
    return ps;
}

void pollset_free(struct pollset *ps)
{
    if (!ps)
        return;
    free(ps->fds);
    free(ps->slot_of);
    free(ps);
}

void pollset_clear(struct pollset *ps)
{
    for (size_t i = 0; i < ps->count; i++)
        ps->slot_of[ps->fds[i].fd] = 0;
    ps->count = 0;
    ps->deadline = INSTANT_NEVER;
}

void pollset_add(struct pollset *ps, int fd, short events)
{
    if (fd < 0)
        return;
    size_t slot = (size_t)fd;
    if (slot >= ps->slots) {
        size_t slots = slot + 64;
        ps->slot_of = memory_resize(ps->slot_of, slots, sizeof *ps->slot_of);
        memset(ps->slot_of + ps->slots, 0, (slots - ps->slots) * sizeof *ps->slot_of);
        ps->slots = slots;
    }
    if (ps->slot_of[slot]) {
        ps->fds[ps->slot_of[slot] - 1].events |= events;
        return;
    }
    if (ps->count == ps->capacity) {
        ps->capacity = ps->capacity ? ps->capacity * 2 : 16;
        ps->fds = memory_resize(ps->fds, ps->capacity, sizeof *ps->fds);
    }
    ps->fds[ps->count++] = (struct pollfd){.fd = fd, .events = events};
    ps->slot_of[slot] = (int)ps->count;
}

void pollset_deadline(struct pollset *ps, instant_us deadline)
{
    ps->deadline = instant_min(ps->deadline, deadline);
}

instant_us pollset_next_deadline(const struct pollset *ps)
{
    return ps->deadline;
}

bool pollset_wait(struct pollset *ps, instant_us now, struct error *err)
{
    struct timespec wait, *timeout = NULL;
    if (ps->deadline != INSTANT_NEVER) {
        int64_t us = ps->deadline > now ? ps->deadline - now : 0;
        wait = (struct timespec){.tv_sec = us / SECOND_US, .tv_nsec = us % SECOND_US * 1000};
        timeout = &wait;
    }
    for (size_t i = 0; i < ps->count; i++)
        ps->fds[i].revents = 0;
    instant_us begun = clock_now();
    int found = ppoll(ps->fds, (nfds_t)ps->count, timeout, NULL), cause = errno;
    ps->waited_us = clock_now() - begun;
    if (found >= 0)
        return true;
    for (size_t i = 0; i < ps->count; i++)
        ps->fds[i].revents = 0;
    return cause == EINTR || error_set(err, ERROR_RESOURCE, "poll: %s", strerror(cause));
}

int64_t pollset_waited_us(const struct pollset *ps)
{
    return ps->waited_us;
}

short pollset_revents(const struct pollset *ps, int fd)
{
    if (fd < 0 || (size_t)fd >= ps->slots || !ps->slot_of[fd])
        return 0;
    return ps->fds[ps->slot_of[fd] - 1].revents;
}
