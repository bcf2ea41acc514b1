/* tests/contract/redis/redis_fake.h -- the redis sink against a server that says what a script tells it to, on a
 * loopback port.
 *
 *   start -> contract_open, contract_add* -> play -> is* -> contract_end -> stop
 *
 * It runs in the test's own thread, between the sink's turns, so that nothing depends on timing. */
#ifndef TESTS_CONTRACT_REDIS_FAKE_H
#define TESTS_CONTRACT_REDIS_FAKE_H

#include "sinks/redis/redis_settings.h"
#include "tests/contract/sink_contract.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_MS 30000
#define OK "$3\r\n1-1\r\n"

extern const struct sink_type sink_redis;

static struct fake {
    int listener, peer; /* peer -1: nobody */
    int accepted;
    const char *hello;          /* the answer to PING, AUTH and SELECT; NULL: none */
    const char *const *replies; /* to the commands after that, NULL after the last, which stands for silence */
    bool hang_up;               /* close after the last reply */
    bool deaf;                  /* after the hello, read nothing */
    size_t chunk;               /* bytes of a reply sent at a time; 0: all */
    size_t next;                /* reply */
    int commands;               /* that came after the hello */
    char in[1 << 16];
    size_t in_size;
    char out[1 << 16];
    size_t out_size;
} fake;

static char url[64];
static struct redis_settings settings;
static struct contract_setup setup = {
    .name = "redis", .type = &sink_redis, .settings = &settings, .destination = "orders"};

static inline void fake_listen(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    fake.listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fake.listener, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(fake.listener, 8), 0);
    ck_assert_int_eq(getsockname(fake.listener, (struct sockaddr *)&address, &size), 0);
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", ntohs(address.sin_port));
}

static inline void fake_hang_up(void)
{
    if (fake.peer >= 0)
        close(fake.peer);
    fake.peer = -1;
    fake.in_size = fake.out_size = 0;
}

static inline void fake_say(const char *text)
{
    size_t size = text ? strlen(text) : 0;
    ck_assert_uint_le(fake.out_size + size, sizeof fake.out);
    memcpy(fake.out + fake.out_size, text ? text : "", size);
    fake.out_size += size;
}

/* Bytes of the first whole command in the buffer and its name; 0 if there is none. */
static inline size_t fake_command(char ret_name[16])
{
    char *p = fake.in, *end = fake.in + fake.in_size;
    long words = fake.in_size ? strtol(p + 1, NULL, 10) : 0;
    p = memchr(p, '\n', fake.in_size);
    for (long i = 0; p && i < words; i++) {
        long size = ++p < end ? strtol(p + 1, NULL, 10) : 0;
        p = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
        if (p && i == 0 && size < 16 && end - p > size)
            snprintf(ret_name, 16, "%.*s", (int)size, p + 1);
        p = p && end - p > size + 2 ? p + size + 2 : NULL;
    }
    return p && words > 0 ? (size_t)(p + 1 - fake.in) : 0;
}

static inline void fake_answer(void)
{
    char name[16] = "";
    for (size_t size; (size = fake_command(name)) > 0;) {
        memmove(fake.in, fake.in + size, fake.in_size -= size);
        if (strcmp(name, "PING") == 0 || strcmp(name, "AUTH") == 0 || strcmp(name, "SELECT") == 0) {
            fake_say(fake.hello);
            continue;
        }
        fake.commands++;
        if (fake.replies && fake.replies[fake.next])
            fake_say(fake.replies[fake.next++]);
    }
}

/* What read(2) returns; -1 also when it reads nothing on purpose. */
static inline ssize_t fake_read(void)
{
    if ((fake.deaf && fake.in_size + fake.out_size > 0) || fake.in_size >= sizeof fake.in)
        return -1;
    return read(fake.peer, fake.in + fake.in_size, sizeof fake.in - fake.in_size);
}

static inline void fake_turn(void)
{
    int peer = fake.peer < 0 ? accept4(fake.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
    if (peer >= 0) {
        fake.peer = peer;
        fake.accepted++;
    }
    if (fake.peer < 0)
        return;
    ssize_t n = fake_read();
    if (n == 0) {
        fake_hang_up();
        return;
    }
    fake.in_size += n > 0 ? (size_t)n : 0;
    fake_answer();
    size_t some = fake.chunk && fake.chunk < fake.out_size ? fake.chunk : fake.out_size;
    n = write(fake.peer, fake.out, some);
    if (n > 0)
        memmove(fake.out, fake.out + n, fake.out_size -= (size_t)n);
    if (fake.hang_up && fake.commands > 0 && fake.out_size == 0 && !fake.replies[fake.next])
        fake_hang_up();
}

static inline void start(void)
{
    fake = (struct fake){.peer = -1, .hello = "+OK\r\n"};
    fake_listen();
    settings = (struct redis_settings){.url = url, .timeout_us = 10 * SECOND_US};
}

static inline void stop(void)
{
    fake_hang_up();
    close(fake.listener);
}

/* Turns of both until every delivery has its verdict. */
static inline void play(struct contract *c)
{
    contract_submit(c);
    instant_us end = clock_now() + PATIENCE_MS * MS_US;
    while (c->sink->in_flight > 0 && clock_now() < end) {
        contract_turn(c, 1);
        fake_turn();
    }
    ck_assert_uint_eq(c->sink->in_flight, 0);
}

static inline void is(const struct contract *c, size_t i, enum verdict verdict, enum error_kind kind)
{
    const struct delivery *d = c->ds[i];
    ck_assert_msg(d->verdict == verdict, "event %zu is %s: %s", i + 1, verdict_name(d->verdict),
                  d->cause ? d->cause->text : "");
    ck_assert_int_eq(d->cause ? d->cause->kind : ERROR_NONE, kind);
}

#endif
