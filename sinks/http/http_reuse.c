#include "sinks/http/http_reuse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct connection {
    int fd;
    int local_port; /* 0: not connected when we last looked */
    char local_ip[INET6_ADDRSTRLEN], remote_ip[INET6_ADDRSTRLEN];
};

/* libcurl does not tell a callback which socket a request is about to use, but the two addresses. */
struct http_reuse {
    struct connection *connections;
    size_t count, capacity;
};

struct http_reuse *http_reuse_new(void)
{
    return memory_new(sizeof(struct http_reuse));
}

void http_reuse_free(struct http_reuse *reuse)
{
    if (!reuse)
        return;
    free(reuse->connections);
    free(reuse);
}

static void forget(struct http_reuse *reuse, int fd)
{
    for (size_t i = 0; i < reuse->count; i++)
        if (reuse->connections[i].fd == fd)
            reuse->connections[i--] = reuse->connections[--reuse->count];
}

static curl_socket_t on_open(void *data, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    struct http_reuse *reuse = data;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    forget(reuse, fd);
    if (reuse->count == reuse->capacity) {
        reuse->capacity = reuse->capacity ? reuse->capacity * 2 : 16;
        reuse->connections = memory_resize(reuse->connections, reuse->capacity, sizeof *reuse->connections);
    }
    reuse->connections[reuse->count++] = (struct connection){.fd = fd};
    return fd;
}

static int on_close(void *data, curl_socket_t fd)
{
    forget(data, fd);
    return close(fd);
}

bool http_reuse_watch(struct http_reuse *reuse, CURL *easy)
{
    CURLcode bad = CURLE_OK;
    bad |= curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, on_open);
    bad |= curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, reuse);
    bad |= curl_easy_setopt(easy, CURLOPT_CLOSESOCKETFUNCTION, on_close);
    bad |= curl_easy_setopt(easy, CURLOPT_CLOSESOCKETDATA, reuse);
    return bad == CURLE_OK;
}

union address {
    struct sockaddr_in6 six;
    struct sockaddr_in four;
    struct sockaddr any;
};

/* Returns the port, 0 when there is none. */
static int write_address(const union address *address, char text[INET6_ADDRSTRLEN])
{
    bool is_six = address->any.sa_family == AF_INET6;
    const void *bytes = is_six ? (const void *)&address->six.sin6_addr : (const void *)&address->four.sin_addr;
    if (!inet_ntop(address->any.sa_family, bytes, text, INET6_ADDRSTRLEN))
        return 0;
    return ntohs(is_six ? address->six.sin6_port : address->four.sin_port);
}

static void name_ends(struct connection *connection)
{
    union address local = {0}, remote = {0};
    socklen_t local_size = sizeof local, remote_size = sizeof remote;
    if (getpeername(connection->fd, &remote.any, &remote_size) == 0 &&
        getsockname(connection->fd, &local.any, &local_size) == 0 && write_address(&remote, connection->remote_ip) != 0)
        connection->local_port = write_address(&local, connection->local_ip);
}

/* -1 when there is none. */
static int find(struct http_reuse *reuse, const struct http_ends *ends)
{
    for (size_t i = 0; i < reuse->count; i++) {
        struct connection *connection = &reuse->connections[i];
        if (connection->local_port == 0)
            name_ends(connection);
        if (connection->local_port == ends->local_port && connection->local_port != 0 &&
            strcmp(connection->local_ip, ends->local_ip) == 0 && strcmp(connection->remote_ip, ends->remote_ip) == 0)
            return connection->fd;
    }
    return -1;
}

/* NULL without TLS, or with another library than OpenSSL. */
static SSL *tls_of(CURL *easy)
{
    const struct curl_tlssessioninfo *tls = NULL;
    if (curl_easy_getinfo(easy, CURLINFO_TLS_SSL_PTR, &tls) != CURLE_OK || !tls ||
        tls->backend != CURLSSLBACKEND_OPENSSL)
        return NULL;
    return tls->internals;
}

bool http_reuse_is_multiplexed(CURL *easy)
{
    const SSL *tls = tls_of(easy);
    const unsigned char *name = NULL;
    unsigned size = 0;
    if (tls)
        SSL_get0_alpn_selected(tls, &name, &size);
    return size == 2 && memcmp(name, "h2", 2) == 0;
}

bool http_reuse_has_leftover(struct http_reuse *reuse, CURL *easy, const struct http_ends *ends)
{
    const SSL *tls = tls_of(easy);
    if (tls && SSL_pending(tls) > 0)
        return true;
    int fd = find(reuse, ends);
    char byte;
    /* TLS sends session tickets before the first answer. A later one, or a change of keys, costs a new connection. */
    return fd < 0 || recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}
