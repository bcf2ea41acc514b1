#include "sinks/redis/redis_address.h"

#include "relay/base/arena.h"

#include <stdio.h>
#include <stdlib.h>

#define PORT_DEFAULT 6379

void redis_address_done(struct redis_address *address)
{
    free(address->path);
    free(address->host);
    free(address->user);
    memory_wipe(address->password);
    free(address->text);
    *address = (struct redis_address){0};
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    int letter = c | ' '; /* lower case */
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* The byte that %XX at `from` stands for; -1 if it is none, or a NUL. */
static int decode_escape(const char *from, size_t left)
{
    int high = left > 2 ? hex_digit(from[1]) : -1;
    int low = left > 2 ? hex_digit(from[2]) : -1;
    return high < 0 || low < 0 || high + low == 0 ? -1 : high * 16 + low;
}

/* A copy with %XX decoded; NULL if a % stands alone. */
static char *decode(const char *from, size_t size)
{
    char *text = memory_new(size + 1);
    for (size_t i = 0, out = 0; i < size; i++, out++) {
        int c = from[i] == '%' ? decode_escape(from + i, size - i) : from[i];
        if (from[i] == '%' && c < 0) {
            memory_wipe(text);
            return NULL;
        }
        i += from[i] == '%' ? 2 : 0;
        text[out] = (char)c;
    }
    return text;
}

static bool number_parse(const char *text, size_t size, int64_t max, int64_t *ret)
{
    int64_t number = 0;
    for (size_t i = 0; i < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        number = number * 10 + (text[i] - '0');
        if (number > max)
            return false;
    }
    *ret = number;
    return size > 0;
}

static bool user_parse(struct redis_address *address, const char *from, size_t size)
{
    const char *colon = memchr(from, ':', size);
    size_t user = colon ? (size_t)(colon - from) : size;
    if (user > 0 && !(address->user = decode(from, user)))
        return false;
    if (!colon)
        return user > 0; /* the password has its own setting */
    address->password = decode(colon + 1, size - user - 1);
    return address->password != NULL;
}

static bool host_parse(struct redis_address *address, const char *from, size_t size)
{
    size_t host = size;
    const char *port = NULL, *end = size && from[0] == '[' ? memchr(from, ']', size) : NULL;
    if (end) { /* an IPv6 address stands in brackets */
        from++;
        host = (size_t)(end - from);
        port = host + 2 < size ? end + 1 : NULL;
        size--;
        if (port && *port != ':')
            return false;
    } else if ((port = memchr(from, ':', size)) != NULL) {
        host = (size_t)(port - from);
    }
    int64_t number = PORT_DEFAULT;
    if (port && !number_parse(port + 1, size - (size_t)(port + 1 - from), 65535, &number))
        return false;
    address->host = decode(from, host);
    address->port = (int)number;
    return host > 0 && address->host;
}

/* What follows redis:// */
static bool network_parse(struct redis_address *address, const char *rest)
{
    size_t authority = strcspn(rest, "/?#");
    const char *at = memrchr(rest, '@', authority);
    if (at && !user_parse(address, rest, (size_t)(at - rest)))
        return false;
    const char *host = at ? at + 1 : rest;
    if (!host_parse(address, host, authority - (size_t)(host - rest)))
        return false;
    const char *database = rest + authority;
    if (strcmp(database, "") == 0 || strcmp(database, "/") == 0)
        return true;
    return *database == '/' && number_parse(database + 1, strlen(database + 1), INT32_MAX, &address->database);
}

static bool unix_parse(struct redis_address *address, const char *rest)
{
    size_t path = strcspn(rest, "?#");
    const char *query = rest + path;
    if (rest[0] != '/' || path < 2 || !(address->path = decode(rest, path)))
        return false;
    return *query == '\0' || (strncmp(query, "?db=", 4) == 0 &&
                              number_parse(query + 4, strlen(query + 4), INT32_MAX, &address->database));
}

static char *describe(const struct redis_address *address)
{
    size_t size = strlen(address->path ? address->path : address->host) + 32;
    char *text = memory_new(size);
    if (address->path)
        snprintf(text, size, "redis at %s", address->path);
    else
        snprintf(text, size, strchr(address->host, ':') ? "redis at [%s]:%d" : "redis at %s:%d", address->host,
                 address->port);
    return text;
}

static bool strip(const char **url, const char *scheme)
{
    size_t size = strlen(scheme);
    if (strncmp(*url, scheme, size) != 0)
        return false;
    *url += size;
    return true;
}

bool redis_address_parse(const char *url, struct redis_address *ret_address, struct error *err)
{
    struct redis_address address = {0};
    bool good = strip(&url, "redis://")    ? network_parse(&address, url)
                : strip(&url, "rediss://") ? (address.tls = true, network_parse(&address, url))
                : strip(&url, "unix://")   ? unix_parse(&address, url)
                                           : false;
    if (!good) {
        redis_address_done(&address);
        return error_set(
            err, ERROR_CONFIG,
            "url is not a Redis address; write redis://[user[:password]@]host[:port][/database], rediss:// "
            "for TLS or unix:///path[?db=N], with special characters of the password as %%XX");
    }
    address.text = describe(&address);
    *ret_address = address;
    return true;
}
