/* relay/postgres/statement_cache.h -- which statements a session has prepared, and under which names. Texts are told
 * apart by address, and outlive the connection. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define STATEMENT_CACHE_MAX 32
#define STATEMENT_NAME_SIZE 32

struct statement_cache {
    const char *texts[STATEMENT_CACHE_MAX];
    size_t count;
};

bool statement_cache_has(const struct statement_cache *cache, const char *sql);
bool statement_cache_is_full(const struct statement_cache *cache);
void statement_cache_add(struct statement_cache *cache, const char *sql); /* it must not be full */
void statement_cache_forget(struct statement_cache *cache, const char *sql);

/* A hash of the text, so that a session inherited from somebody else can never run other SQL under our name. */
void statement_cache_name(const char *sql, char ret[STATEMENT_NAME_SIZE]);
