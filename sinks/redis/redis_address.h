/* sinks/redis/redis_address.h -- where a Redis server is and who we are there. */
#pragma once

#include "relay/base/error.h"

#include <stdint.h>

struct redis_address {
    bool tls;
    char *path; /* of a Unix socket; NULL: host and port */
    char *host;
    int port;
    char *user, *password; /* NULL: none */
    int64_t database;
    char *text; /* for messages: without user and password */
};

/* redis://[[user]:password@]host[:port][/database], rediss:// likewise, unix:///path[?db=N]. User, password and path
 * may hold %XX. On success the caller owns the parts: redis_address_done(). *err is ERROR_CONFIG and never shows the
 * password. */
bool redis_address_parse(const char *url, struct redis_address *ret_address, struct error *err) MUST_CHECK;

void redis_address_done(struct redis_address *address); /* wipes the password */
