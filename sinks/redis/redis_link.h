/* sinks/redis/redis_link.h -- one non-blocking connection to Redis.
 *
 *   redis_link_new -> (redis_link_open -> redis_link_shake* -> (redis_link_append | redis_link_write | redis_link_read
 * | redis_link_reply)* -> redis_link_close)* -> redis_link_free
 *
 * It moves commands and replies and knows nothing of deliveries. A function that fails leaves the link open with the
 * reason in *err: the caller decides what that means for what is under way, then calls redis_link_close(). */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/pollset.h"
#include "sinks/redis/redis_address.h"

#include <hiredis/hiredis.h>

enum redis_link_state {
    REDIS_LINK_DOWN,
    REDIS_LINK_LOOKING_UP, /* the name server is asked for the host's address */
    REDIS_LINK_CONNECTING, /* the network's handshake */
    REDIS_LINK_SHAKING,    /* AUTH, SELECT and PING are on their way */
    REDIS_LINK_UP
};

struct redis_link;

/* `address` is borrowed. NULL and *err when its TLS cannot work. */
struct redis_link *redis_link_new(const struct redis_address *address, const char *tls_ca, int64_t timeout_us,
                                  struct error *err) MUST_CHECK;
void redis_link_free(struct redis_link *link); /* NULL is a no-op */

enum redis_link_state redis_link_state(const struct redis_link *link);

/* Starts to connect. A thread looks its host name up. */
bool redis_link_open(struct redis_link *link, instant_us now, struct error *err) MUST_CHECK;
void redis_link_close(struct redis_link *link);

/* Takes LOOKING_UP, CONNECTING and SHAKING towards UP, as far as it goes now. */
bool redis_link_shake(struct redis_link *link, instant_us now, struct error *err) MUST_CHECK;

/* Only while UP. Returns where the command ends in the stream of bytes, to be compared with redis_link_written(). */
uint64_t redis_link_append(struct redis_link *link, int argc, const char **argv, const size_t *sizes);
uint64_t redis_link_written(const struct redis_link *link); /* bytes the kernel took so far */
size_t redis_link_unwritten(const struct redis_link *link); /* bytes that wait in the buffer */

bool redis_link_write(struct redis_link *link, instant_us now, struct error *err) MUST_CHECK;
/* *ret_some: there may be more that poll(2) will not tell of. */
bool redis_link_read(struct redis_link *link, instant_us now, bool *ret_some, struct error *err) MUST_CHECK;

/* The next complete reply, or *ret_reply = NULL. freeReplyObject() it. Arrays and endless strings are errors: no
 * command of ours is answered by one. */
bool redis_link_reply(struct redis_link *link, redisReply **ret_reply, struct error *err) MUST_CHECK;

/* `waiting`: replies are outstanding. Has the server been silent for too long? */
bool redis_link_check(struct redis_link *link, bool waiting, instant_us now, struct error *err) MUST_CHECK;

void redis_link_prepare(const struct redis_link *link, bool waiting, struct pollset *ps);
bool redis_link_readable(const struct redis_link *link, const struct pollset *ps); /* after poll; NULL: maybe */
