#include "sinks/redis/redis_command.h"

#include <inttypes.h>
#include <stdio.h>

static void add(struct redis_command *command, struct span argument)
{
    command->argv[command->argc] = argument.data ? argument.data : "";
    command->sizes[command->argc] = argument.size;
    command->argc++;
}

static void add_field(struct redis_command *command, const char *name, struct span value)
{
    if (!value.data)
        return;
    add(command, span_of(name));
    add(command, value);
}

static void add_maxlen(struct redis_command *command, int64_t maxlen)
{
    if (maxlen == 0)
        return;
    snprintf(command->maxlen, sizeof command->maxlen, "%" PRId64, maxlen);
    add(command, SPAN_LITERAL("MAXLEN"));
    add(command, SPAN_LITERAL("~"));
    add(command, span_of(command->maxlen));
}

static void build_stream(struct redis_command *command, int64_t maxlen, const struct delivery *d)
{
    const struct event *event = d->event;
    snprintf(command->id, sizeof command->id, "%" PRId64, event->id);
    add(command, SPAN_LITERAL("XADD"));
    add(command, d->destination);
    add_maxlen(command, maxlen);
    add(command, SPAN_LITERAL("*"));
    add_field(command, "id", span_of(command->id));
    add_field(command, "event_id", event->event_id);
    add_field(command, "type", event->type);
    add_field(command, "key", event->key);
    add_field(command, "payload", event->payload);
    add_field(command, "headers", event->headers);
    add_field(command, "traceparent", event->traceparent);
}

void redis_command_build(struct redis_command *ret_command, enum redis_command_kind kind, int64_t maxlen,
                         const struct delivery *d)
{
    ret_command->argc = 0;
    if (kind == REDIS_STREAM) {
        build_stream(ret_command, maxlen, d);
        return;
    }
    add(ret_command, kind == REDIS_LIST ? SPAN_LITERAL("RPUSH") : SPAN_LITERAL("PUBLISH"));
    add(ret_command, d->destination);
    add(ret_command, d->event->payload);
}
