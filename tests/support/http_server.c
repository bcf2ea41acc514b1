#include "tests/support/http_server.h"

#include "relay/base/arena.h"

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 4096
#define HEAD_MAX 131072

struct http_server {
    int listener, port;
    SSL_CTX *tls;
    pthread_t acceptor;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock. */
    struct http_script script;
    struct http_counts counts;
    bool stopping, released;
    char *head, *body;
    size_t body_bytes;
    int fds[CONNECTIONS_MAX]; /* -1 = closed */
    pthread_t threads[CONNECTIONS_MAX];
};

struct connection {
    struct http_server *server;
    size_t slot;
    int fd;
    SSL *tls;
    char *buffer; /* HEAD_MAX */
    size_t used;
    bool deaf, early; /* the request just read; it was answered when its header was */
};

static ssize_t connection_read(struct connection *c, char *bytes, size_t size)
{
    return c->tls ? SSL_read(c->tls, bytes, (int)size) : recv(c->fd, bytes, size, 0);
}

static bool connection_write(struct connection *c, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = c->tls ? SSL_write(c->tls, bytes, (int)size) : send(c->fd, bytes, size, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        bytes += n, size -= (size_t)n;
    }
    return true;
}

static size_t content_length(const char *head)
{
    const char *line = strcasestr(head, "\r\ncontent-length:");
    return line ? strtoull(line + strlen("\r\ncontent-length:"), NULL, 10) : 0;
}

static bool path_is_deaf(const char *head)
{
    const char *end = strstr(head, " HTTP/1.1\r\n");
    return end && end - head >= 5 && memcmp(end - 5, "/deaf", 5) == 0;
}

static bool answer_early(struct connection *c)
{
    pthread_mutex_lock(&c->server->lock);
    struct http_script script = c->server->script;
    pthread_mutex_unlock(&c->server->lock);
    c->early = script.early;
    return !c->early || connection_write(c, script.answer, strlen(script.answer));
}

/* Reads one request; the server keeps it. */
static bool request_read(struct connection *c)
{
    char *end;
    c->buffer[c->used] = '\0';
    while (!(end = strstr(c->buffer, "\r\n\r\n"))) {
        ssize_t n = c->used < HEAD_MAX - 1 ? connection_read(c, c->buffer + c->used, HEAD_MAX - 1 - c->used) : -1;
        if (n <= 0)
            return false;
        c->used += (size_t)n;
        c->buffer[c->used] = '\0';
    }
    *end = '\0';
    c->deaf = path_is_deaf(c->buffer);
    if (!answer_early(c))
        return false;
    size_t head_bytes = (size_t)(end + 4 - c->buffer), body_bytes = content_length(c->buffer);
    char *body = memory_new(body_bytes + 1);
    size_t have = c->used - head_bytes < body_bytes ? c->used - head_bytes : body_bytes;
    memcpy(body, c->buffer + head_bytes, have);
    size_t rest = c->used - head_bytes - have;
    while (have < body_bytes) {
        ssize_t n = connection_read(c, body + have, body_bytes - have);
        if (n <= 0) {
            free(body);
            return false;
        }
        have += (size_t)n;
    }
    struct http_server *server = c->server;
    pthread_mutex_lock(&server->lock);
    free(server->head);
    free(server->body);
    server->head = memory_text(c->buffer);
    server->body = body;
    server->body_bytes = body_bytes;
    server->counts.requests++;
    pthread_mutex_unlock(&server->lock);
    memmove(c->buffer, c->buffer + head_bytes, rest);
    c->used = rest;
    return true;
}

/* Which script holds for the request just read; waits while it says so. False when the server stops meanwhile. */
static bool script_take(struct http_server *server, bool deaf, struct http_script *ret)
{
    pthread_mutex_lock(&server->lock);
    *ret = server->script;
    struct http_counts *counts = &server->counts;
    if (deaf)
        while (!server->stopping)
            pthread_cond_wait(&server->changed, &server->lock);
    if (ret->hold) {
        counts->held++;
        if (counts->held_most < counts->held)
            counts->held_most = counts->held;
        while (!server->released && !server->stopping)
            pthread_cond_wait(&server->changed, &server->lock);
        counts->held--;
    }
    bool go_on = !server->stopping;
    pthread_mutex_unlock(&server->lock);
    return go_on;
}

static bool write_late(struct connection *c, const struct http_script *script)
{
    struct http_server *server = c->server;
    pthread_mutex_lock(&server->lock);
    while (!server->released && !server->stopping)
        pthread_cond_wait(&server->changed, &server->lock);
    pthread_mutex_unlock(&server->lock);
    if (!connection_write(c, script->late, script->late_size ? script->late_size : strlen(script->late)))
        return false;
    int unconfirmed = 1;
    while (ioctl(c->fd, SIOCOUTQ, &unconfirmed) == 0 && unconfirmed > 0)
        sched_yield();
    pthread_mutex_lock(&server->lock);
    server->counts.late++;
    pthread_mutex_unlock(&server->lock);
    return true;
}

static bool answer(struct connection *c)
{
    struct http_script script;
    if (!script_take(c->server, c->deaf, &script))
        return false;
    if (c->early)
        return true;
    const char *text = script.answer ? script.answer : HTTP_SERVER_OK;
    size_t size = script.size ? script.size : strlen(text);
    if (script.cut && script.cut < size)
        size = script.cut;
    if (script.silent)
        size = 0;
    size_t first = script.first < size ? script.first : size;
    bool written = connection_write(c, text, first) && connection_write(c, text + first, size - first);
    if (written && script.late)
        written = write_late(c, &script);
    if (script.reset) {
        struct linger linger = {.l_onoff = 1, .l_linger = 0};
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    }
    return written && !script.cut && !script.silent && !script.reset && !script.close;
}

static void *connection_run(void *data)
{
    struct connection *c = data;
    struct http_server *server = c->server;
    bool ready = true;
    if (server->tls) {
        c->tls = SSL_new(server->tls);
        SSL_set_fd(c->tls, c->fd);
        ready = SSL_accept(c->tls) == 1;
    }
    while (ready && request_read(c) && answer(c))
        continue;
    pthread_mutex_lock(&server->lock);
    server->fds[c->slot] = -1;
    pthread_mutex_unlock(&server->lock);
    SSL_free(c->tls);
    close(c->fd);
    pthread_mutex_lock(&server->lock);
    server->counts.open--;
    pthread_mutex_unlock(&server->lock);
    free(c->buffer);
    free(c);
    return NULL;
}

static void *acceptor_run(void *data)
{
    struct http_server *server = data;
    int fd;
    while ((fd = accept(server->listener, NULL, NULL)) >= 0) {
        pthread_mutex_lock(&server->lock);
        size_t slot = server->counts.connections;
        if (server->stopping || slot == CONNECTIONS_MAX) {
            close(fd);
        } else {
            struct connection *c = memory_new(sizeof *c);
            *c = (struct connection){.server = server, .slot = slot, .fd = fd, .buffer = memory_new(HEAD_MAX)};
            server->fds[slot] = fd;
            server->counts.connections++;
            server->counts.open++;
            pthread_create(&server->threads[slot], NULL, connection_run, c);
        }
        pthread_mutex_unlock(&server->lock);
    }
    return NULL;
}

struct http_server *http_server_start(const char *certificate_file, const char *key_file)
{
    struct http_server *server = memory_new(sizeof *server);
    pthread_mutex_init(&server->lock, NULL);
    pthread_cond_init(&server->changed, NULL);
    if (certificate_file) {
        server->tls = SSL_CTX_new(TLS_server_method());
        if (SSL_CTX_use_certificate_chain_file(server->tls, certificate_file) != 1 ||
            SSL_CTX_use_PrivateKey_file(server->tls, key_file, SSL_FILETYPE_PEM) != 1)
            abort();
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    server->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (server->listener < 0 || bind(server->listener, (struct sockaddr *)&address, size) != 0 ||
        listen(server->listener, 1024) != 0 || getsockname(server->listener, (struct sockaddr *)&address, &size) != 0)
        abort();
    server->port = ntohs(address.sin_port);
    pthread_create(&server->acceptor, NULL, acceptor_run, server);
    return server;
}

void http_server_limit_tls(struct http_server *server, int version)
{
    if (SSL_CTX_set_max_proto_version(server->tls, version) != 1)
        abort();
}

void http_server_stop(struct http_server *server)
{
    if (!server)
        return;
    pthread_mutex_lock(&server->lock);
    server->stopping = true;
    pthread_cond_broadcast(&server->changed);
    size_t count = server->counts.connections;
    for (size_t i = 0; i < count; i++)
        if (server->fds[i] >= 0)
            shutdown(server->fds[i], SHUT_RDWR);
    pthread_mutex_unlock(&server->lock);
    shutdown(server->listener, SHUT_RDWR);
    pthread_join(server->acceptor, NULL);
    for (size_t i = 0; i < count; i++)
        pthread_join(server->threads[i], NULL);
    close(server->listener);
    SSL_CTX_free(server->tls);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    free(server->head);
    free(server->body);
    free(server);
}

int http_server_port(const struct http_server *server)
{
    return server->port;
}

void http_server_script(struct http_server *server, struct http_script script)
{
    pthread_mutex_lock(&server->lock);
    server->script = script;
    server->released = false;
    pthread_mutex_unlock(&server->lock);
}

void http_server_release(struct http_server *server)
{
    pthread_mutex_lock(&server->lock);
    server->released = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

struct http_counts http_server_counts(struct http_server *server)
{
    pthread_mutex_lock(&server->lock);
    struct http_counts counts = server->counts;
    pthread_mutex_unlock(&server->lock);
    return counts;
}

const char *http_server_head(struct http_server *server)
{
    return server->head;
}

struct span http_server_body(struct http_server *server)
{
    return (struct span){server->body, server->body_bytes};
}

bool http_server_header(struct http_server *server, const char *name, char *text, size_t size)
{
    size_t found = 0, name_size = strlen(name);
    for (const char *line = strstr(server->head, "\r\n"); line; line = strstr(line, "\r\n")) {
        line += 2;
        if (strncasecmp(line, name, name_size) != 0 || line[name_size] != ':')
            continue;
        const char *value = line + name_size + 1;
        value += strspn(value, " ");
        size_t value_size = strcspn(value, "\r");
        if (value_size >= size)
            return false;
        memcpy(text, value, value_size);
        text[value_size] = '\0';
        found++;
    }
    return found == 1;
}
