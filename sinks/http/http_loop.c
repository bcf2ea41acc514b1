#include "sinks/http/http_loop.h"

#include "relay/base/arena.h"

#include <stdint.h>
#include <stdlib.h>

#define AGAIN_US (100 * MS_US)

struct watch {
    int fd;
    short events;
};

struct http_loop {
    CURLM *multi;
    struct watch *watches; /* what libcurl waits for; it keeps index + 1 as the socket's data */
    size_t count, capacity;
    struct watch *ready; /* progress()'s copy: libcurl changes `watches` while it is called */
    size_t ready_capacity;
    instant_us now; /* of the current call, for the timer callback */
    instant_us deadline;
};

static void watch_remove(struct http_loop *loop, size_t slot)
{
    struct watch last = loop->watches[--loop->count];
    if (slot == loop->count)
        return;
    loop->watches[slot] = last;
    curl_multi_assign(loop->multi, last.fd, (void *)(uintptr_t)(slot + 1));
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *data, void *socket_data)
{
    (void)easy;
    struct http_loop *loop = data;
    size_t slot = (size_t)(uintptr_t)socket_data;
    if (what == CURL_POLL_REMOVE) {
        if (slot)
            watch_remove(loop, slot - 1);
        return 0;
    }
    short events = 0;
    if (what & CURL_POLL_IN)
        events |= POLLIN;
    if (what & CURL_POLL_OUT)
        events |= POLLOUT;
    if (slot) {
        loop->watches[slot - 1].events = events;
        return 0;
    }
    if (loop->count == loop->capacity) {
        loop->capacity = loop->capacity ? loop->capacity * 2 : 16;
        loop->watches = memory_resize(loop->watches, loop->capacity, sizeof *loop->watches);
    }
    loop->watches[loop->count++] = (struct watch){.fd = fd, .events = events};
    curl_multi_assign(loop->multi, fd, (void *)(uintptr_t)loop->count);
    return 0;
}

static int on_timer(CURLM *multi, long timeout_ms, void *data)
{
    (void)multi;
    struct http_loop *loop = data;
    loop->deadline = timeout_ms < 0 ? INSTANT_NEVER : loop->now + timeout_ms * MS_US;
    return 0;
}

struct http_loop *http_loop_open(long connections)
{
    CURLM *multi = curl_multi_init();
    if (!multi)
        return NULL;
    struct http_loop *loop = memory_new(sizeof *loop);
    loop->multi = multi;
    loop->deadline = INSTANT_NEVER;
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, loop);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, loop);
    /* A transfer never waits for a free connection, as that would use up its time; one more for the probe. */
    curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, connections + 1);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, connections + 1);
    return loop;
}

void http_loop_close(struct http_loop *loop)
{
    if (!loop)
        return;
    curl_multi_cleanup(loop->multi);
    free(loop->watches);
    free(loop->ready);
    free(loop);
}

bool http_loop_add(struct http_loop *loop, CURL *easy, instant_us now)
{
    loop->now = now;
    return curl_multi_add_handle(loop->multi, easy) == CURLM_OK;
}

void http_loop_remove(struct http_loop *loop, CURL *easy)
{
    curl_multi_remove_handle(loop->multi, easy);
}

void http_loop_prepare(const struct http_loop *loop, struct pollset *ps)
{
    for (size_t i = 0; i < loop->count; i++)
        pollset_add(ps, loop->watches[i].fd, loop->watches[i].events);
    pollset_deadline(ps, loop->deadline);
}

static size_t collect_ready(struct http_loop *loop, const struct pollset *ps)
{
    if (loop->ready_capacity < loop->count) {
        loop->ready_capacity = loop->capacity;
        loop->ready = memory_resize(loop->ready, loop->ready_capacity, sizeof *loop->ready);
    }
    size_t count = 0;
    for (size_t i = 0; i < loop->count; i++) {
        short revents = pollset_revents(ps, loop->watches[i].fd);
        if (revents)
            loop->ready[count++] = (struct watch){loop->watches[i].fd, revents};
    }
    return count;
}

/* A call that fails for lack of memory has not said when libcurl wants to be called again, and it has transfers whose
 * time limits end them. */
static void act(struct http_loop *loop, curl_socket_t fd, int what)
{
    int running;
    if (curl_multi_socket_action(loop->multi, fd, what, &running) != CURLM_OK)
        loop->deadline = instant_min(loop->deadline, loop->now + AGAIN_US);
}

void http_loop_progress(struct http_loop *loop, const struct pollset *ps, instant_us now)
{
    loop->now = now;
    size_t count = collect_ready(loop, ps);
    for (size_t i = 0; i < count; i++) {
        int what = 0;
        if (loop->ready[i].events & POLLIN)
            what |= CURL_CSELECT_IN;
        if (loop->ready[i].events & POLLOUT)
            what |= CURL_CSELECT_OUT;
        if (loop->ready[i].events & ~(POLLIN | POLLOUT))
            what |= CURL_CSELECT_ERR;
        /* A descriptor that an earlier call closed is unknown to libcurl by now, and it ignores it. */
        act(loop, loop->ready[i].fd, what);
    }
    if (now < loop->deadline)
        return;
    /* libcurl calls on_timer() again from inside, as ours may be the earlier clock. */
    loop->deadline = INSTANT_NEVER;
    act(loop, CURL_SOCKET_TIMEOUT, 0);
}

CURL *http_loop_next(struct http_loop *loop, CURLcode *ret)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(loop->multi, &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURL *easy = message->easy_handle;
        *ret = message->data.result;
        curl_multi_remove_handle(loop->multi, easy);
        return easy;
    }
    return NULL;
}
