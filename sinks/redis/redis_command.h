/* sinks/redis/redis_command.h -- a delivery as one Redis command.
 *
 *   stream   XADD destination [MAXLEN ~ n] * id 812 event_id ... type paid key 7 payload ... headers ... traceparent
 * ... list     RPUSH destination payload publish  PUBLISH destination payload
 *
 * A stream entry has only the fields that the event has: one without `payload` is a tombstone, one with an empty
 * `payload` is not. */
#pragma once

#include "sinks/delivery.h"

enum redis_command_kind { REDIS_STREAM, REDIS_LIST, REDIS_PUBLISH };

#define REDIS_ARGUMENTS_MAX 20

struct redis_command {
    int argc;
    const char *argv[REDIS_ARGUMENTS_MAX]; /* borrow from the event and from this struct: do not copy it */
    size_t sizes[REDIS_ARGUMENTS_MAX];
    char id[24], maxlen[24];
};

/* `maxlen` 0: the stream is not trimmed. */
void redis_command_build(struct redis_command *ret_command, enum redis_command_kind kind, int64_t maxlen,
                         const struct delivery *d);
