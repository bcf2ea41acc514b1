/* sinks/redis/redis_verdict.h -- what an error reply of Redis means for the event it answers. */
#pragma once

#include "sinks/delivery.h"

struct redis_verdict {
    const char *prefix; /* of the reply, as whole words */
    enum verdict verdict;
    enum error_kind kind;
    const char *hint; /* what to do about it, for the message; NULL if the reply says enough */
    bool reconnect;   /* this server is not the one we want */
};

/* Never NULL: the last row takes everything. */
const struct redis_verdict *redis_verdict_find(struct span reply);

/* One line about it. Redis quotes the arguments of a command it does not know; they hold the payload and are cut. */
void redis_verdict_explain(const struct redis_verdict *rule, struct span reply, struct error *ret_cause);
