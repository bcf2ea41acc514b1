/* An HTTP receiver that takes its time and is never the bottleneck: receiver PORT LOG DELAY_US [EVERY SLOW_US] answers
 * each request with 200 after DELAY_US, every EVERYth after SLOW_US, however many others wait. LOG gets `TIME_US ID`
 * for each answer: the wall clock when it was written, and the request's Event-Id. One thread; it ends with its parent.
 *
 * Requests come one at a time on a connection, as HTTP/1.1 without pipelining has them, and fit into one buffer. */
#include "relay/base/arena.h"
#include "relay/base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define CONNECTIONS_MAX 4096 /* by file descriptor */
#define REQUEST_MAX 8192
#define READY_MAX 256
#define LISTENING_MAX 1024
#define ID_MAX 24

static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

struct connection {
    int fd; /* -1: closed by the client, and its answer is still due */
    size_t used;
    char id[ID_MAX];
    instant_us due_at; /* of the answer */
    struct connection *next;
    char bytes[REQUEST_MAX];
};

/* Answers that wait equally long are due in the order they came. */
struct waiting {
    int64_t delay_us;
    struct connection *first, *last;
};

struct receiver {
    int epoll, listener, timer;
    FILE *log;
    uint64_t requests, slow_every; /* 0: none is slow */
    struct waiting quick, slow;
    struct connection *connections[CONNECTIONS_MAX];
};

_Noreturn static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void watch(struct receiver *receiver, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(receiver->epoll, EPOLL_CTL_ADD, fd, &event) != 0)
        fail("epoll_ctl");
}

static void listen_on(struct receiver *receiver, long port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1;
    receiver->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (setsockopt(receiver->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(receiver->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(receiver->listener, LISTENING_MAX) != 0)
        fail("listen");
    watch(receiver, receiver->listener);
}

static void accept_all(struct receiver *receiver)
{
    int fd;
    while ((fd = accept4(receiver->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (fd >= CONNECTIONS_MAX) {
            errno = EMFILE;
            fail("accept");
        }
        if (!receiver->connections[fd])
            receiver->connections[fd] = memory_new(sizeof(struct connection));
        receiver->connections[fd]->fd = fd;
        receiver->connections[fd]->used = 0;
        receiver->connections[fd]->due_at = INSTANT_NEVER;
        watch(receiver, fd);
    }
}

/* The value of a header, or NULL; `head` ends with an empty line. */
static const char *header(const char *head, const char *name)
{
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += strlen("\r\n");
        if (strncasecmp(line, name, length) == 0 && line[length] == ':')
            return line + length + strspn(line + length, ": ");
    }
    return NULL;
}

/* Whether the whole request has come. */
static bool is_complete(const struct connection *connection)
{
    const char *end = strstr(connection->bytes, "\r\n\r\n"), *length = header(connection->bytes, "Content-Length");
    size_t head = end ? (size_t)(end - connection->bytes) + strlen("\r\n\r\n") : 0;
    return end && connection->used >= head + (length ? strtoul(length, NULL, 10) : 0);
}

static void queue_answer(struct receiver *receiver, struct connection *connection)
{
    const char *id = header(connection->bytes, "Event-Id");
    snprintf(connection->id, sizeof connection->id, "%.*s", id ? (int)strcspn(id, "\r") : 1, id ? id : "-");
    receiver->requests++;
    bool slow = receiver->slow_every && receiver->requests % receiver->slow_every == 0;
    struct waiting *waiting = slow ? &receiver->slow : &receiver->quick;
    connection->used = 0;
    connection->due_at = clock_now() + waiting->delay_us;
    connection->next = NULL;
    if (waiting->first)
        waiting->last->next = connection;
    else
        waiting->first = connection;
    waiting->last = connection;
}

static void hang_up(struct receiver *receiver, struct connection *connection)
{
    close(connection->fd);
    if (connection->due_at == INSTANT_NEVER)
        return;
    receiver->connections[connection->fd] = NULL;
    connection->fd = -1;
}

static void read_request(struct receiver *receiver, struct connection *connection)
{
    ssize_t size = read(connection->fd, connection->bytes + connection->used, REQUEST_MAX - 1 - connection->used);
    if (size < 0 && errno == EAGAIN)
        return;
    if (size > 0 && connection->due_at != INSTANT_NEVER) {
        errno = EPROTO; /* the next request before the answer */
        fail("read");
    }
    if (size <= 0) {
        hang_up(receiver, connection);
        return;
    }
    connection->used += (size_t)size;
    connection->bytes[connection->used] = '\0';
    if (is_complete(connection))
        queue_answer(receiver, connection);
}

static void answer_due(struct receiver *receiver, struct waiting *waiting, instant_us now)
{
    while (waiting->first && waiting->first->due_at <= now) {
        struct connection *connection = waiting->first;
        waiting->first = connection->next;
        connection->due_at = INSTANT_NEVER;
        if (connection->fd < 0) {
            free(connection);
            continue;
        }
        fprintf(receiver->log, "%" PRId64 " %s\n", clock_wall_us(), connection->id);
        if (write(connection->fd, answer, sizeof answer - 1) != (ssize_t)sizeof answer - 1)
            perror("receiver: an answer was not taken");
    }
}

static void set_timer(const struct receiver *receiver)
{
    instant_us at = instant_min(receiver->quick.first ? receiver->quick.first->due_at : INSTANT_NEVER,
                                receiver->slow.first ? receiver->slow.first->due_at : INSTANT_NEVER);
    struct itimerspec when = {0};
    if (at != INSTANT_NEVER) {
        when.it_value.tv_sec = at / SECOND_US;
        when.it_value.tv_nsec = at % SECOND_US * 1000;
    }
    if (timerfd_settime(receiver->timer, TFD_TIMER_ABSTIME, &when, NULL) != 0)
        fail("timerfd_settime");
}

static void serve(struct receiver *receiver)
{
    struct epoll_event ready[READY_MAX];
    for (;;) {
        set_timer(receiver);
        fflush(receiver->log);
        int count = epoll_wait(receiver->epoll, ready, READY_MAX, -1);
        if (count < 0 && errno != EINTR)
            fail("epoll_wait");
        for (int i = 0; i < count; i++) {
            uint64_t expired;
            if (ready[i].data.fd == receiver->listener)
                accept_all(receiver);
            else if (ready[i].data.fd != receiver->timer)
                read_request(receiver, receiver->connections[ready[i].data.fd]);
            else if (read(receiver->timer, &expired, sizeof expired) < 0 && errno != EAGAIN)
                fail("read");
        }
        instant_us now = clock_now();
        answer_due(receiver, &receiver->quick, now);
        answer_due(receiver, &receiver->slow, now);
    }
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 6) {
        fprintf(stderr, "usage: receiver PORT LOG DELAY_US [EVERY SLOW_US]\n");
        return 1;
    }
    struct receiver *receiver = memory_new(sizeof *receiver);
    receiver->quick.delay_us = strtoll(argv[3], NULL, 10);
    receiver->slow_every = argc == 6 ? strtoull(argv[4], NULL, 10) : 0;
    receiver->slow.delay_us = argc == 6 ? strtoll(argv[5], NULL, 10) : 0;
    receiver->log = fopen(argv[2], "we");
    receiver->epoll = epoll_create1(EPOLL_CLOEXEC);
    receiver->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (!receiver->log || receiver->epoll < 0 || receiver->timer < 0)
        fail(argv[2]);
    watch(receiver, receiver->timer);
    listen_on(receiver, strtol(argv[1], NULL, 10));
    serve(receiver);
}
