/* tests/fuzz/fake_server.h -- a server on this machine, in the same thread as its client: it never waits.
 *
 *   fake_server_open or fake_server_open_tcp once;  fake_server_accept -> fake_server_read, fake_server_write* ->
 * fake_server_hang_up */
#ifndef TESTS_FUZZ_FAKE_SERVER_H
#define TESTS_FUZZ_FAKE_SERVER_H

#include "tests/fuzz/fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct fake_server {
    int listening, connection; /* -1: none */
};

/* A path that starts with @ names a socket without a file. */
static inline void fake_server_open(struct fake_server *server, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = strlen(path);
    FUZZ_CHECK(size < sizeof address.sun_path, "%s is too long", path);
    memcpy(address.sun_path, path, size);
    if (*path == '@')
        address.sun_path[0] = '\0';
    server->connection = -1;
    server->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size);
    FUZZ_CHECK(bind(server->listening, (struct sockaddr *)&address, length) == 0, "%s: %s", path, strerror(errno));
    FUZZ_CHECK(listen(server->listening, 64) == 0, "%s: %s", path, strerror(errno));
}

/* Returns the port, on 127.0.0.1. */
static inline int fake_server_open_tcp(struct fake_server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    server->connection = -1;
    server->listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool good = bind(server->listening, (struct sockaddr *)&address, size) == 0 && listen(server->listening, 64) == 0 &&
                getsockname(server->listening, (struct sockaddr *)&address, &size) == 0;
    FUZZ_CHECK(good, "%s", strerror(errno));
    return ntohs(address.sin_port);
}

static inline void fake_server_hang_up(struct fake_server *server)
{
    if (server->connection >= 0)
        close(server->connection);
    server->connection = -1;
}

/* Takes the next client, if one is there. True when one is connected. */
static inline bool fake_server_accept(struct fake_server *server)
{
    if (server->connection < 0)
        server->connection = accept4(server->listening, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    return server->connection >= 0;
}

/* Bytes that have arrived; 0: none, or the client is gone. */
static inline size_t fake_server_read(struct fake_server *server, char *ret, size_t size)
{
    ssize_t n = server->connection >= 0 ? recv(server->connection, ret, size, 0) : 0;
    return n > 0 ? (size_t)n : 0;
}

static inline void fake_server_write(struct fake_server *server, struct span bytes)
{
    while (bytes.size > 0 && server->connection >= 0) {
        ssize_t n = send(server->connection, bytes.data, bytes.size, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* the client is gone, or reads nothing */
        bytes = (struct span){bytes.data + n, bytes.size - (size_t)n};
    }
}

#endif
