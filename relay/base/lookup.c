#include "relay/base/lookup.h"

#include "relay/base/arena.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDRESS_SIZE 80 /* IPv6 with the name of an interface */

/* The thread and the owner meet here; who comes second frees the memory. */
enum lookup_state { LOOKUP_RUNNING, LOOKUP_DONE, LOOKUP_LEFT_ALONE };

struct lookup {
    pthread_t thread;
    atomic_int state;
    int fd; /* readable a moment before it is done */
    char *name;
    int code, cause; /* of getaddrinfo(), and errno */
    size_t count;
    char addresses[LOOKUP_ADDRESSES_MAX][ADDRESS_SIZE];
};

bool lookup_is_needed(const char *name)
{
    const struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    struct addrinfo *address = NULL;
    if (getaddrinfo(name, NULL, &numeric, &address) != 0)
        return true;
    freeaddrinfo(address);
    return false;
}

static void release(struct lookup *lookup)
{
    close(lookup->fd);
    free(lookup->name);
    free(lookup);
}

static void look_up(struct lookup *lookup)
{
    const struct addrinfo streams = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    lookup->code = getaddrinfo(lookup->name, NULL, &streams, &found);
    lookup->cause = errno;
    if (lookup->code != 0)
        return;
    for (const struct addrinfo *one = found; one && lookup->count < LOOKUP_ADDRESSES_MAX; one = one->ai_next)
        if (getnameinfo(one->ai_addr, one->ai_addrlen, lookup->addresses[lookup->count], ADDRESS_SIZE, NULL, 0,
                        NI_NUMERICHOST) == 0)
            lookup->count++;
    freeaddrinfo(found);
}

static void *run(void *arg)
{
    struct lookup *lookup = arg;
    uint64_t one = 1;
    look_up(lookup);
    /* First this: once it is done, the descriptor may be somebody else's. */
    ssize_t ignored = write(lookup->fd, &one, sizeof one);
    (void)ignored;
    if (atomic_exchange(&lookup->state, LOOKUP_DONE) == LOOKUP_LEFT_ALONE)
        release(lookup);
    return NULL;
}

/* Signals are the main thread's: this one gets none. */
static int start(struct lookup *lookup)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(&lookup->thread, NULL, run, lookup);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}

struct lookup *lookup_start(const char *name, struct error *err)
{
    struct lookup *lookup = memory_new(sizeof *lookup);
    lookup->name = memory_text(name);
    lookup->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int failed = lookup->fd < 0 ? errno : start(lookup);
    if (failed == 0)
        return lookup;
    error_set(err, ERROR_RESOURCE, "cannot look up host name \"%s\": %s", name, strerror(failed));
    release(lookup);
    return NULL;
}

void lookup_free(struct lookup *lookup)
{
    if (!lookup)
        return;
    pthread_t thread = lookup->thread; /* while it is ours to read */
    int running = LOOKUP_RUNNING;
    if (atomic_compare_exchange_strong(&lookup->state, &running, LOOKUP_LEFT_ALONE)) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL); /* it has nothing left to do */
    release(lookup);
}

const char *lookup_name(const struct lookup *lookup)
{
    return lookup->name;
}

void lookup_prepare(const struct lookup *lookup, struct pollset *ps)
{
    pollset_add(ps, lookup->fd, POLLIN);
}

bool lookup_is_done(struct lookup *lookup)
{
    return atomic_load(&lookup->state) == LOOKUP_DONE;
}

size_t lookup_count(const struct lookup *lookup, struct error *err)
{
    const char *why = lookup->code == EAI_SYSTEM ? strerror(lookup->cause) : gai_strerror(lookup->code);
    if (lookup->count == 0)
        error_set(err, ERROR_UNREACHABLE, "could not translate host name \"%s\" to address: %s", lookup->name,
                  lookup->code != 0 ? why : "it has none");
    return lookup->count;
}

const char *lookup_address(const struct lookup *lookup, size_t index)
{
    return lookup->addresses[index];
}
