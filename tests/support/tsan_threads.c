/* C11's threads, mutexes and conditions, and pthread_clockjoin_np(), made of what ThreadSanitizer follows, for builds
 * with it. librdkafka and we call them. It crashes in a thread that it has not seen start, and takes two threads that
 * take turns by a mutex that it does not see for two that race.
 *
 * librdkafka finds these first: what a program defines comes before what a library does. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <threads.h>
#include <time.h>

_Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t) && _Alignof(mtx_t) >= _Alignof(pthread_mutex_t), "mtx_t");
_Static_assert(sizeof(cnd_t) == sizeof(pthread_cond_t) && _Alignof(cnd_t) >= _Alignof(pthread_cond_t), "cnd_t");
_Static_assert(sizeof(thrd_t) == sizeof(pthread_t), "thrd_t");

static int status_of(int error)
{
    return error == 0           ? thrd_success
           : error == EBUSY     ? thrd_busy
           : error == ETIMEDOUT ? thrd_timedout
           : error == ENOMEM    ? thrd_nomem
                                : thrd_error;
}

struct start {
    thrd_start_t function;
    void *argument;
};

static void *run(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    return (void *)(intptr_t)start.function(start.argument);
}

int thrd_create(thrd_t *ret, thrd_start_t function, void *argument)
{
    struct start *start = malloc(sizeof *start);
    if (!start)
        return thrd_nomem;
    *start = (struct start){function, argument};
    int error = pthread_create(ret, NULL, run, start);
    if (error != 0)
        free(start);
    return status_of(error);
}

int thrd_join(thrd_t thread, int *ret)
{
    void *value = NULL;
    int error = pthread_join(thread, &value);
    if (ret)
        *ret = (int)(intptr_t)value;
    return status_of(error);
}

int thrd_detach(thrd_t thread)
{
    return status_of(pthread_detach(thread));
}

static pthread_mutex_t *mutex_of(mtx_t *mutex)
{
    return (pthread_mutex_t *)mutex;
}

int mtx_init(mtx_t *mutex, int type)
{
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes,
                              (type & mtx_recursive) != 0 ? PTHREAD_MUTEX_RECURSIVE : PTHREAD_MUTEX_NORMAL);
    int error = pthread_mutex_init(mutex_of(mutex), &attributes);
    pthread_mutexattr_destroy(&attributes);
    return status_of(error);
}

int mtx_lock(mtx_t *mutex)
{
    return status_of(pthread_mutex_lock(mutex_of(mutex)));
}

int mtx_trylock(mtx_t *mutex)
{
    return status_of(pthread_mutex_trylock(mutex_of(mutex)));
}

int mtx_unlock(mtx_t *mutex)
{
    return status_of(pthread_mutex_unlock(mutex_of(mutex)));
}

void mtx_destroy(mtx_t *mutex)
{
    pthread_mutex_destroy(mutex_of(mutex));
}

static pthread_cond_t *condition_of(cnd_t *condition)
{
    return (pthread_cond_t *)condition;
}

int cnd_init(cnd_t *condition)
{
    return status_of(pthread_cond_init(condition_of(condition), NULL));
}

int cnd_signal(cnd_t *condition)
{
    return status_of(pthread_cond_signal(condition_of(condition)));
}

int cnd_broadcast(cnd_t *condition)
{
    return status_of(pthread_cond_broadcast(condition_of(condition)));
}

int cnd_wait(cnd_t *condition, mtx_t *mutex)
{
    return status_of(pthread_cond_wait(condition_of(condition), mutex_of(mutex)));
}

int cnd_timedwait(cnd_t *restrict condition, mtx_t *restrict mutex, const struct timespec *restrict until)
{
    return status_of(pthread_cond_timedwait(condition_of(condition), mutex_of(mutex), until));
}

void cnd_destroy(cnd_t *condition)
{
    pthread_cond_destroy(condition_of(condition));
}

void call_once(once_flag *flag, void (*function)(void))
{
    pthread_once((pthread_once_t *)flag, function);
}

static bool is_before(struct timespec a, struct timespec b)
{
    return a.tv_sec < b.tv_sec || (a.tv_sec == b.tv_sec && a.tv_nsec < b.tv_nsec);
}

int pthread_clockjoin_np(pthread_t thread, void **ret, clockid_t clock, const struct timespec *until)
{
    for (;;) {
        struct timespec now;
        int error = pthread_tryjoin_np(thread, ret);
        clock_gettime(clock, &now);
        if (error != EBUSY || !is_before(now, *until))
            return error == EBUSY ? ETIMEDOUT : error;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}
