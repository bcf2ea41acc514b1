#include "relay/postgres/statement_cache.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>

static size_t place_of(const struct statement_cache *cache, const char *sql)
{
    size_t i = 0;
    while (i < cache->count && cache->texts[i] != sql)
        i++;
    return i;
}

bool statement_cache_has(const struct statement_cache *cache, const char *sql)
{
    return place_of(cache, sql) < cache->count;
}

bool statement_cache_is_full(const struct statement_cache *cache)
{
    return cache->count == STATEMENT_CACHE_MAX;
}

void statement_cache_add(struct statement_cache *cache, const char *sql)
{
    assert(!statement_cache_is_full(cache));
    cache->texts[cache->count++] = sql;
}

void statement_cache_forget(struct statement_cache *cache, const char *sql)
{
    size_t i = place_of(cache, sql);
    if (i < cache->count)
        cache->texts[i] = cache->texts[--cache->count];
}

/* FNV-1a; the text is ours, so nobody can aim at a collision. */
void statement_cache_name(const char *sql, char ret[STATEMENT_NAME_SIZE])
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (const char *p = sql; *p; p++)
        hash = (hash ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    snprintf(ret, STATEMENT_NAME_SIZE, "pgcourier_%016" PRIx64, hash);
}
