/* sinks/redis/redis_run.h -- events of one key and destination as one Redis command: a script that adds one after the
 * other and stops at the first that is refused. The server runs it as a whole or not at all. */
#pragma once

#include "sinks/redis/redis_command.h"
#include "sinks/redis/redis_link.h"

#define REDIS_RUN_EVENTS_MAX 64

extern const char redis_run_script[]; /* see redis_run.c for what it takes and answers */

struct redis_run; /* the room in which commands are put together */

struct redis_run *redis_run_new(void);
void redis_run_free(struct redis_run *run); /* NULL is a no-op */

/* How many deliveries, linked by `next`, are one run: `first` and those joined to it. */
size_t redis_run_length(const struct delivery *first);

/* Appends the command for the `length` deliveries from `first` on, REDIS_RUN_EVENTS_MAX at most; returns what
 * redis_link_append() does. */
uint64_t redis_run_append(struct redis_run *run, struct redis_link *link, enum redis_command_kind kind, int64_t maxlen,
                          const struct delivery *first, size_t length);

/* What the script says: so many were added, and if those are not all, what Redis said to the next. False: the script
 * cannot have said that. */
bool redis_run_read(const redisReply *reply, size_t length, size_t *ret_done, struct span *ret_error);

/* The server does not let this user run scripts, whatever is in them. */
bool redis_run_is_forbidden(struct span error);
