/* tests/support/played_resolver.h -- a name server that knows names of .test only, and hangs when it is asked for one.
 *
 *   resolver_begin -> lookups -> resolver_release? -> resolver_wait_for_calls_to_end?
 *
 * The program is linked with --wrap for getaddrinfo(), freeaddrinfo() and pthread_create(). */
#ifndef TESTS_SUPPORT_PLAYED_RESOLVER_H
#define TESTS_SUPPORT_PLAYED_RESOLVER_H

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static pthread_mutex_t resolver_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t resolver_change = PTHREAD_COND_INITIALIZER;
static bool resolver_released, resolver_refuse_threads;
static int resolver_called, resolver_running; /* lookups of names */
static sigset_t resolver_signals;             /* blocked in the thread that asked for signals.test */

int __real_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **ret);
int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **ret);
void __real_freeaddrinfo(struct addrinfo *found);
void __wrap_freeaddrinfo(struct addrinfo *found);
int __real_pthread_create(pthread_t *ret, const pthread_attr_t *attributes, void *(*function)(void *), void *argument);
int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attributes, void *(*function)(void *), void *argument);

static const struct {
    const char *name, *addresses[2];
} resolver_names[] = {
    {"one.test", {"127.0.0.1"}},  {"two.test", {"::1", "127.0.0.1"}}, {"hang.test", {"127.0.0.1"}},
    {"four.test", {"127.0.0.4"}}, {"signals.test", {"127.0.0.1"}},
};

/* Its own, so that freeaddrinfo() knows a list of ours. */
static struct sockaddr_un resolver_no_address = {.sun_family = AF_UNIX};
static struct addrinfo resolver_odd = {
    .ai_family = AF_UNIX, .ai_addr = (struct sockaddr *)&resolver_no_address, .ai_addrlen = 1};

static inline int resolver_append(const char *address, struct addrinfo **end)
{
    const struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM};
    return __real_getaddrinfo(address, NULL, &numeric, end);
}

static inline int resolver_answer(const char *name, struct addrinfo **ret)
{
    struct addrinfo **end = ret;
    int code = EAI_NONAME;
    for (size_t i = 0; i < sizeof resolver_names / sizeof resolver_names[0]; i++)
        for (int a = 0; strcmp(name, resolver_names[i].name) == 0 && a < 2 && resolver_names[i].addresses[a]; a++) {
            code = resolver_append(resolver_names[i].addresses[a], end);
            end = &(*end)->ai_next;
        }
    for (int i = 1; strcmp(name, "many.test") == 0 && i < 100; i++) {
        char address[16];
        snprintf(address, sizeof address, "127.0.0.%d", i);
        code = resolver_append(address, end);
        end = &(*end)->ai_next;
    }
    return code;
}

int __wrap_getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **ret)
{
    *ret = NULL;
    if (hints->ai_flags & AI_NUMERICHOST || !strstr(name, ".test"))
        return __real_getaddrinfo(name, service, hints, ret);
    pthread_mutex_lock(&resolver_mutex);
    resolver_called++;
    resolver_running++;
    pthread_cond_broadcast(&resolver_change);
    while (strcmp(name, "hang.test") == 0 && !resolver_released)
        pthread_cond_wait(&resolver_change, &resolver_mutex);
    if (strcmp(name, "signals.test") == 0)
        pthread_sigmask(SIG_SETMASK, NULL, &resolver_signals);
    resolver_running--;
    pthread_cond_broadcast(&resolver_change);
    pthread_mutex_unlock(&resolver_mutex);
    if (strcmp(name, "odd.test") == 0)
        return *ret = &resolver_odd, 0;
    if (strcmp(name, "broken.test") == 0)
        return errno = EMFILE, EAI_SYSTEM;
    return resolver_answer(name, ret);
}

void __wrap_freeaddrinfo(struct addrinfo *found)
{
    if (found != &resolver_odd)
        __real_freeaddrinfo(found);
}

int __wrap_pthread_create(pthread_t *ret, const pthread_attr_t *attributes, void *(*function)(void *), void *argument)
{
    return resolver_refuse_threads ? EAGAIN : __real_pthread_create(ret, attributes, function, argument);
}

static inline void resolver_begin(void)
{
    pthread_mutex_lock(&resolver_mutex);
    resolver_released = resolver_refuse_threads = false;
    resolver_called = 0;
    pthread_mutex_unlock(&resolver_mutex);
}

static inline int resolver_calls(void)
{
    pthread_mutex_lock(&resolver_mutex);
    int calls = resolver_called;
    pthread_mutex_unlock(&resolver_mutex);
    return calls;
}

static inline void resolver_release(void)
{
    pthread_mutex_lock(&resolver_mutex);
    resolver_released = true;
    pthread_cond_broadcast(&resolver_change);
    pthread_mutex_unlock(&resolver_mutex);
}

/* Of so many lookups, no more than `left` of which go on. */
static inline void resolver_wait_for_calls_to_end(int calls, int left)
{
    pthread_mutex_lock(&resolver_mutex);
    while (resolver_called < calls || resolver_running > left)
        pthread_cond_wait(&resolver_change, &resolver_mutex);
    pthread_mutex_unlock(&resolver_mutex);
}

/* The threads of this process. */
static inline int resolver_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    while (readdir(tasks))
        count++;
    closedir(tasks);
    return count;
}

/* Whose call has ended has still to say so: until there are no more than so many. */
static inline void resolver_wait_for_threads_to_end(int left)
{
    while (resolver_threads() > left)
        poll(NULL, 0, 1);
}

#endif
