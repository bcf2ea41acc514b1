#include "sinks/redis/redis_link.h"

#include "relay/base/arena.h"
#include "relay/base/fault_point.h"
#include "relay/base/lookup.h"
#include "sinks/redis/redis_tls.h"
#include "sinks/redis/redis_verdict.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#define REPLY_BYTES_MAX ((size_t)1024 * 1024) /* of unparsed replies; ours are ids, numbers and error texts */
#define READ_BYTES ((size_t)16 * 1024)        /* what hiredis reads at once */

struct redis_link {
    const struct redis_address *address;
    struct redis_tls *tls; /* NULL: plain */
    int64_t timeout_us;
    enum redis_link_state state;
    struct lookup *lookup; /* while LOOKING_UP; in others NULL, or one that was given up waiting for */
    instant_us lookup_at;  /* when an attempt has asked for it last */
    redisContext *context; /* NULL while DOWN and LOOKING_UP */
    unsigned shakes_left;  /* replies of the handshake still to come */
    uint64_t appended_bytes;
    instant_us active_at; /* when the server last gave a sign of life, or we began to wait for one */
    bool was_waiting;
};

struct redis_link *redis_link_new(const struct redis_address *address, const char *tls_ca, int64_t timeout_us,
                                  struct error *err)
{
    struct redis_tls *tls = NULL;
    if (address->tls && !(tls = redis_tls_new(tls_ca, address->host, err)))
        return NULL;
    struct redis_link *link = memory_new(sizeof *link);
    link->address = address;
    link->tls = tls;
    link->timeout_us = timeout_us;
    return link;
}

void redis_link_free(struct redis_link *link)
{
    if (!link)
        return;
    redis_link_close(link);
    lookup_free(link->lookup);
    redis_tls_free(link->tls);
    free(link);
}

enum redis_link_state redis_link_state(const struct redis_link *link)
{
    return link->state;
}

void redis_link_close(struct redis_link *link)
{
    redis_tls_end(link->tls);
    if (link->context)
        redisFree(link->context);
    link->context = NULL;
    link->state = REDIS_LINK_DOWN;
    link->was_waiting = false;
}

static bool link_failed(const struct redis_link *link, enum error_kind kind, const char *text, struct error *err)
{
    const char *fault = link->tls ? redis_tls_fault(link->tls) : NULL;
    return error_set(err, kind, "%s: %s", link->address->text, fault ? fault : text);
}

static bool context_failed(const struct redis_link *link, struct error *err)
{
    const redisContext *context = link->context;
    if (!context)
        return link_failed(link, ERROR_UNREACHABLE, "out of memory", err);
    return link_failed(link, context->err == REDIS_ERR_PROTOCOL ? ERROR_PROTOCOL : ERROR_UNREACHABLE, context->errstr,
                       err);
}

/* ---- connecting ---- */

/* `host` is an address in figures; NULL: a Unix socket. */
static bool call(struct redis_link *link, const char *host, struct error *err)
{
    const struct redis_address *address = link->address;
    link->context = host ? redisConnectNonBlock(host, address->port) : redisConnectUnixNonBlock(address->path);
    link->state = REDIS_LINK_CONNECTING;
    if (FAULT_ERROR("redis.open"))
        return link_failed(link, ERROR_UNREACHABLE, "made to fail", err);
    return (link->context && !link->context->err) || context_failed(link, err);
}

/* One that takes longer than the time limit is gone on with by the next open, so that it is heard in the end. */
static bool begin_lookup(struct redis_link *link, instant_us now, struct error *err)
{
    struct error cause;
    if (link->lookup && lookup_is_done(link->lookup) && now - link->lookup_at > LOOKUP_AGE_MAX_US) {
        lookup_free(link->lookup);
        link->lookup = NULL;
    }
    link->lookup_at = now;
    if (!link->lookup && !(link->lookup = lookup_start(link->address->host, &cause)))
        return link_failed(link, ERROR_UNREACHABLE, cause.text, err);
    link->state = REDIS_LINK_LOOKING_UP;
    return true;
}

/* The first, of IPv4 if there is one, as hiredis would. */
static const char *choose_address(const struct lookup *lookup, size_t count)
{
    size_t i = 0;
    while (i < count && strchr(lookup_address(lookup, i), ':'))
        i++;
    return lookup_address(lookup, i < count ? i : 0);
}

static bool looked_up(struct redis_link *link, instant_us now, struct error *err)
{
    if (!lookup_is_done(link->lookup))
        return true;
    struct error cause;
    size_t count = lookup_count(link->lookup, &cause);
    link->active_at = now;
    bool ok = count > 0 ? call(link, choose_address(link->lookup, count), err)
                        : link_failed(link, ERROR_UNREACHABLE, cause.text, err);
    lookup_free(link->lookup);
    link->lookup = NULL;
    return ok;
}

bool redis_link_open(struct redis_link *link, instant_us now, struct error *err)
{
    const struct redis_address *address = link->address;
    link->appended_bytes = 0;
    link->active_at = now;
    bool by_name = !address->path && lookup_is_needed(address->host);
    return by_name ? begin_lookup(link, now, err) : call(link, address->path ? NULL : address->host, err);
}

static void append_text(struct redis_link *link, const char *const words[], int count)
{
    const char *argv[3];
    size_t sizes[3];
    for (int i = 0; i < count; i++) {
        argv[i] = words[i];
        sizes[i] = strlen(words[i]);
    }
    redis_link_append(link, count, argv, sizes);
    link->shakes_left++;
}

/* The PING makes sure that a server which needs no password and no database number still says that it is ready. */
static void append_handshake(struct redis_link *link)
{
    const struct redis_address *address = link->address;
    char database[24];
    snprintf(database, sizeof database, "%" PRId64, address->database);
    link->shakes_left = 0;
    if (address->user)
        append_text(link, (const char *[]){"AUTH", address->user, address->password ? address->password : ""}, 3);
    else if (address->password)
        append_text(link, (const char *[]){"AUTH", address->password}, 2);
    if (address->database)
        append_text(link, (const char *[]){"SELECT", database}, 2);
    append_text(link, (const char *[]){"PING"}, 1);
}

static bool connected(struct redis_link *link, instant_us now, struct error *err)
{
    struct pollfd p = {.fd = link->context->fd, .events = POLLOUT};
    if (poll(&p, 1, 0) <= 0)
        return true;
    int cause = 0;
    socklen_t size = sizeof cause;
    if (getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &cause, &size) != 0 || cause != 0)
        return link_failed(link, ERROR_UNREACHABLE, strerror(cause ? cause : errno), err);
    if (!link->address->path)
        (void)redisEnableKeepAlive(link->context);
    if (link->tls && !redis_tls_start(link->tls, link->context, err))
        return error_prefix(err, "%s", link->address->text);
    if (FAULT_ERROR("redis.shake"))
        return link_failed(link, ERROR_UNREACHABLE, "made to fail", err);
    link->active_at = now;
    link->state = REDIS_LINK_SHAKING;
    append_handshake(link);
    return true;
}

/* A refusal here is about us or the server, never about an event. */
static bool shake_answered(struct redis_link *link, const redisReply *reply, struct error *err)
{
    if (reply->type == REDIS_REPLY_STATUS) {
        if (--link->shakes_left == 0)
            link->state = REDIS_LINK_UP;
        return true;
    }
    if (reply->type != REDIS_REPLY_ERROR)
        return link_failed(link, ERROR_UNREACHABLE, "does not answer like Redis", err);
    struct span text = {reply->str, (size_t)reply->len};
    const struct redis_verdict *rule = redis_verdict_find(text);
    redis_verdict_explain(rule, text, err);
    if (rule->kind == ERROR_REFUSED)
        err->kind = ERROR_ROUTE;
    return error_prefix(err, "%s", link->address->text);
}

bool redis_link_shake(struct redis_link *link, instant_us now, struct error *err)
{
    if (link->state == REDIS_LINK_LOOKING_UP && !looked_up(link, now, err))
        return false;
    if (link->state == REDIS_LINK_CONNECTING && !connected(link, now, err))
        return false;
    bool some = true;
    while (link->state == REDIS_LINK_SHAKING && some) {
        if (!redis_link_read(link, now, &some, err) || !redis_link_write(link, now, err))
            return false;
        redisReply *reply = NULL;
        bool good = redis_link_reply(link, &reply, err);
        if (good && reply)
            good = some = shake_answered(link, reply, err);
        freeReplyObject(reply);
        if (!good && err->kind == ERROR_PROTOCOL)
            err->kind = ERROR_UNREACHABLE; /* whatever listens there is no Redis */
        if (!good)
            return false;
    }
    return redis_link_check(link, link->state != REDIS_LINK_UP, now, err);
}

/* ---- talking ---- */

uint64_t redis_link_append(struct redis_link *link, int argc, const char **argv, const size_t *sizes)
{
    size_t before = sdslen(link->context->obuf);
    /* Fails only for lack of memory; then the reply never comes and the time limit ends the connection. */
    (void)redisAppendCommandArgv(link->context, argc, argv, sizes);
    link->appended_bytes += sdslen(link->context->obuf) - before;
    return link->appended_bytes;
}

size_t redis_link_unwritten(const struct redis_link *link)
{
    return link->context ? sdslen(link->context->obuf) : 0;
}

uint64_t redis_link_written(const struct redis_link *link)
{
    return link->appended_bytes - redis_link_unwritten(link);
}

bool redis_link_write(struct redis_link *link, instant_us now, struct error *err)
{
    int done;
    size_t before = redis_link_unwritten(link);
    if (before == 0)
        return true;
    if (link->tls)
        redis_tls_clear();
    if (FAULT_ERROR("redis.write"))
        return link_failed(link, ERROR_UNREACHABLE, "made to fail", err);
    if (redisBufferWrite(link->context, &done) != REDIS_OK)
        return context_failed(link, err);
    FAULT_POINT("redis.wrote");
    if (redis_link_unwritten(link) < before)
        link->active_at = now;
    return true;
}

bool redis_link_read(struct redis_link *link, instant_us now, bool *ret_some, struct error *err)
{
    const redisReader *reader = link->context->reader;
    size_t before = reader->len;
    if (link->tls)
        redis_tls_clear();
    if (FAULT_ERROR("redis.read"))
        return link_failed(link, ERROR_UNREACHABLE, "made to fail", err);
    if (redisBufferRead(link->context) != REDIS_OK)
        return context_failed(link, err);
    size_t grown = reader->len - before;
    /* TLS keeps what it decrypted ahead of us, where poll(2) does not see it. */
    *ret_some = link->tls ? grown > 0 : grown >= READ_BYTES;
    if (grown > 0)
        link->active_at = now;
    return true;
}

bool redis_link_reply(struct redis_link *link, redisReply **ret_reply, struct error *err)
{
    const redisReader *reader = link->context->reader;
    void *reply = NULL;
    *ret_reply = NULL;
    /* Not asked without need: it would note that a reply has begun. */
    if (reader->pos == reader->len)
        return true;
    /* The start of a reply (ridx -1), before hiredis makes room for as many elements as it promises. */
    if (reader->ridx == -1 && !strchr("+-:$", reader->buf[reader->pos]))
        return link_failed(link, ERROR_PROTOCOL, "protocol error: not a reply to any of our commands", err);
    if (redisGetReplyFromReader(link->context, &reply) != REDIS_OK)
        return context_failed(link, err);
    if (!reply && reader->len - reader->pos > REPLY_BYTES_MAX)
        return link_failed(link, ERROR_PROTOCOL, "protocol error: a reply is longer than any should be", err);
    *ret_reply = reply;
    return true;
}

/* ---- the loop ---- */

bool redis_link_check(struct redis_link *link, bool waiting, instant_us now, struct error *err)
{
    if (waiting && !link->was_waiting)
        link->active_at = now;
    link->was_waiting = waiting;
    if (!waiting || now - link->active_at < link->timeout_us)
        return true;
    char text[80];
    bool nameless = link->state == REDIS_LINK_LOOKING_UP;
    snprintf(text, sizeof text, "no answer%s within %" PRId64 " ms", nameless ? " of a name server" : "",
             link->timeout_us / MS_US);
    return link_failed(link, ERROR_UNREACHABLE, text, err);
}

void redis_link_prepare(const struct redis_link *link, bool waiting, struct pollset *ps)
{
    if (link->state == REDIS_LINK_DOWN)
        return;
    if (link->state == REDIS_LINK_LOOKING_UP) {
        lookup_prepare(link->lookup, ps);
        pollset_deadline(ps, link->active_at + link->timeout_us);
        return;
    }
    int fd = link->context->fd;
    /* In a TLS handshake the socket takes bytes at any time, but it is our turn only after the server's. */
    bool tls_shaking = link->tls && link->state == REDIS_LINK_SHAKING;
    bool writing = link->state == REDIS_LINK_CONNECTING || (redis_link_unwritten(link) > 0 && !tls_shaking);
    /* Idle too: that is how a closed connection shows before the next event is lost on it. */
    pollset_add(ps, fd, (short)(POLLIN | (writing ? POLLOUT : 0)));
    if (waiting || link->state != REDIS_LINK_UP)
        pollset_deadline(ps, link->active_at + link->timeout_us);
}

bool redis_link_readable(const struct redis_link *link, const struct pollset *ps)
{
    return !ps || pollset_revents(ps, link->context->fd) != 0;
}
