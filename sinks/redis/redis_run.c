#include "sinks/redis/redis_run.h"

#include "relay/base/arena.h"

#include <stdio.h>
#include <stdlib.h>

/* ARGV: the command's name, then for each event how many arguments follow, and those. The answer is the number of
 * events if all were added, else a text: how many were, and the error of the next. */
const char redis_run_script[] = "local at, done = 2, 0 "
                                "while at <= #ARGV do "
                                "local count = tonumber(ARGV[at]) "
                                "local reply = redis.pcall(ARGV[1], KEYS[1], unpack(ARGV, at + 1, at + count)) "
                                "if type(reply) == 'table' and reply.err then return done .. ' ' .. reply.err end "
                                "done, at = done + 1, at + count + 1 "
                                "end "
                                "return done";

enum { HEAD_ARGUMENTS = 5 }; /* EVAL, script, number of keys, key, the command's name */
#define COMMAND_NAME 0       /* in redis_command.argv, before the destination */
#define COMMAND_REST 2

struct redis_run {
    struct redis_command commands[REDIS_RUN_EVENTS_MAX];
    char counts[REDIS_RUN_EVENTS_MAX][8];
    const char *argv[HEAD_ARGUMENTS + REDIS_RUN_EVENTS_MAX * (REDIS_ARGUMENTS_MAX + 1)];
    size_t sizes[HEAD_ARGUMENTS + REDIS_RUN_EVENTS_MAX * (REDIS_ARGUMENTS_MAX + 1)];
    int argc;
};

struct redis_run *redis_run_new(void)
{
    return memory_new(sizeof(struct redis_run));
}

void redis_run_free(struct redis_run *run)
{
    free(run);
}

size_t redis_run_length(const struct delivery *first)
{
    size_t length = 1;
    for (const struct delivery *d = first->next; d && d->joined; d = d->next)
        length++;
    return length;
}

static void add(struct redis_run *run, const char *argument, size_t size)
{
    run->argv[run->argc] = argument;
    run->sizes[run->argc] = size;
    run->argc++;
}

static void add_event(struct redis_run *run, size_t i)
{
    const struct redis_command *command = &run->commands[i];
    int size = snprintf(run->counts[i], sizeof run->counts[i], "%d", command->argc - COMMAND_REST);
    add(run, run->counts[i], (size_t)size);
    for (int a = COMMAND_REST; a < command->argc; a++)
        add(run, command->argv[a], command->sizes[a]);
}

uint64_t redis_run_append(struct redis_run *run, struct redis_link *link, enum redis_command_kind kind, int64_t maxlen,
                          const struct delivery *first, size_t length)
{
    run->argc = 0;
    add(run, "EVAL", 4);
    add(run, redis_run_script, sizeof redis_run_script - 1);
    add(run, "1", 1);
    add(run, first->destination.data, first->destination.size);
    const struct delivery *d = first;
    for (size_t i = 0; i < length; i++, d = d->next) {
        redis_command_build(&run->commands[i], kind, maxlen, d);
        if (i == 0)
            add(run, run->commands[0].argv[COMMAND_NAME], run->commands[0].sizes[COMMAND_NAME]);
        add_event(run, i);
    }
    return redis_link_append(link, run->argc, run->argv, run->sizes);
}

/* Redis before 7 says where in the script it happened, and keeps the sign of an error: "@user_script: 1: -OOM ...". */
static struct span plain_error(struct span text)
{
    static const char place[] = "@user_script: ";
    if (text.size >= sizeof place - 1 && memcmp(text.data, place, sizeof place - 1) == 0) {
        const char *end = memmem(text.data + sizeof place - 1, text.size - (sizeof place - 1), ": ", 2);
        if (end)
            text = (struct span){end + 2, text.size - (size_t)(end + 2 - text.data)};
    }
    if (text.size > 0 && text.data[0] == '-')
        text = (struct span){text.data + 1, text.size - 1};
    return text;
}

bool redis_run_read(const redisReply *reply, size_t length, size_t *ret_done, struct span *ret_error)
{
    *ret_error = (struct span){0};
    *ret_done = reply->type == REDIS_REPLY_INTEGER ? (size_t)reply->integer : 0;
    if (reply->type == REDIS_REPLY_INTEGER)
        return reply->integer == (long long)length;
    if (reply->type != REDIS_REPLY_STRING)
        return false;
    char *end;
    long long done = strtoll(reply->str, &end, 10); /* hiredis ends it with NUL */
    if (end == reply->str || *end != ' ' || done < 0 || done >= (long long)length)
        return false;
    *ret_done = (size_t)done;
    end++;
    *ret_error = plain_error((struct span){end, (size_t)reply->len - (size_t)(end - reply->str)});
    return true;
}

/* NOPERM may be about the key instead, and then an event alone fares no better. All versions quote the command. */
bool redis_run_is_forbidden(struct span error)
{
    static const struct {
        const char *start, *command;
    } texts[] = {{"NOPERM ", "'eval'"}, {"ERR unknown command", ""}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (error.size >= strlen(texts[i].start) && memcmp(error.data, texts[i].start, strlen(texts[i].start)) == 0)
            return memmem(error.data, error.size, texts[i].command, strlen(texts[i].command)) != NULL;
    return false;
}
