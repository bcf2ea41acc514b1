/* Where requests go. An HTTP destination, which may hold an event's data, is a path below the configured URL and can be
 * nothing else; addresses never show their passwords; a Redis address is read as libcurl decodes it. */
#include "tests/fuzz/fuzz.h"

#include "sinks/http/http_url.h"
#include "sinks/redis/redis_address.h"

#include <curl/curl.h>

static char *part(CURLU *url, CURLUPart which)
{
    char *text = NULL;
    return curl_url_get(url, which, &text, 0) == CURLUE_OK ? text : NULL;
}

static CURLU *parse(const char *text)
{
    CURLU *url = curl_url();
    FUZZ_CHECK(curl_url_set(url, CURLUPART_URL, text, CURLU_PATH_AS_IS) == CURLUE_OK, "\"%s\" is not a URL", text);
    return url;
}

static void check_same(CURLU *a, CURLU *b, CURLUPart which, const char *name)
{
    char *from = part(a, which), *to = part(b, which);
    FUZZ_CHECK((!from && !to) || (from && to && strcmp(from, to) == 0), "%s is %s and was %s", name, to ? to : "absent",
               from ? from : "absent");
    curl_free(from);
    curl_free(to);
}

/* No "." and "..", nor what a server makes of one that turns backslashes and drops what follows a semicolon. */
static void check_dots(const char *path)
{
    static const char *const names[] = {".", ".."}, *const starts[] = {"/", "%5C"}, *const ends[] = {"/", "%5C", ";"};
    for (size_t i = 0; i < 12; i++) {
        const char *name = names[i % 2], *start = starts[i / 2 % 2];
        char inside[16];
        snprintf(inside, sizeof inside, "%s%s%s", start, name, ends[i / 4]);
        FUZZ_CHECK(!strstr(path, inside), "%s in %s", inside, path);
        size_t size = (size_t)snprintf(inside, sizeof inside, "%s%s", start, name);
        FUZZ_CHECK(strlen(path) < size || strcmp(path + strlen(path) - size, inside) != 0, "%s ends %s", inside, path);
    }
}

static void check_path(CURLU *joined, CURLU *base)
{
    char *path = part(joined, CURLUPART_PATH), *below = part(base, CURLUPART_PATH);
    size_t size = strlen(below);
    while (size > 0 && below[size - 1] == '/')
        size--;
    FUZZ_CHECK(strncmp(path, below, size) == 0 && path[size] == '/', "%s is not below %s", path, below);
    for (const char *c = path + size; *c; c++)
        FUZZ_CHECK(*c > ' ' && *c < 0x7f && !strchr("?#\\\"<>", *c), "byte 0x%02x in %s", (unsigned char)*c, path);
    check_dots(path + size);
    curl_free(path);
    curl_free(below);
}

/* The path with %XX decoded is the destination. */
static void check_decoded(const char *joined, const struct http_url *url, struct span destination)
{
    size_t base = strlen(url->base);
    while (base > 0 && url->base[base - 1] == '/')
        base--;
    const char *path = joined + base + 1;
    size_t path_size = strlen(path) - (url->query ? strlen(url->query) + 1 : 0);
    int decoded = 0;
    char *text = curl_easy_unescape(NULL, path, (int)path_size, &decoded);
    if (destination.data[0] == '/')
        destination = (struct span){destination.data + 1, destination.size - 1};
    FUZZ_CHECK(path_size == 0 ? destination.size == 0 : span_equal((struct span){text, (size_t)decoded}, destination),
               "%s is not %.*s", joined, (int)destination.size, destination.data);
    curl_free(text);
}

static void check_join(const struct http_url *url, struct span destination)
{
    struct arena *arena = arena_new();
    struct error err = {0};
    const char *joined = http_url_join(url, destination, arena, &err);
    if (!joined) {
        fuzz_check_error(&err);
        FUZZ_CHECK(err.kind == ERROR_REFUSED, "%s", err.text);
    } else if (destination.size == 0) {
        FUZZ_CHECK(strcmp(joined, url->base_with_query) == 0, "%s", joined);
    } else {
        CURLU *to = parse(joined), *from = parse(url->base_with_query);
        FUZZ_CHECK(strlen(joined) <= HTTP_URL_MAX, "%zu bytes", strlen(joined));
        check_same(from, to, CURLUPART_SCHEME, "scheme");
        check_same(from, to, CURLUPART_USER, "user");
        check_same(from, to, CURLUPART_PASSWORD, "password");
        check_same(from, to, CURLUPART_HOST, "host");
        check_same(from, to, CURLUPART_PORT, "port");
        check_same(from, to, CURLUPART_QUERY, "query");
        check_same(from, to, CURLUPART_FRAGMENT, "fragment");
        check_path(to, from);
        check_decoded(joined, url, destination);
        curl_url_cleanup(to);
        curl_url_cleanup(from);
    }
    arena_free(arena);
}

static void check_http(const char *text, struct span destination)
{
    struct http_url url = {0};
    struct error err = {0};
    if (!http_url_init(&url, text, &err)) {
        fuzz_check_error(&err);
        FUZZ_CHECK(err.kind == ERROR_CONFIG && !url.base && !url.base_with_query && !url.user, "%s", err.text);
        return;
    }
    CURLU *base = parse(url.base);
    char *user = part(base, CURLUPART_USER), *password = part(base, CURLUPART_PASSWORD),
         *query = part(base, CURLUPART_QUERY);
    FUZZ_CHECK(!user && !password && !query, "%s shows more than it may", url.base);
    curl_url_cleanup(base);
    check_join(&url, destination);
    http_url_done(&url);
}

/* ---- Redis ---- */

/* `decoded` is what libcurl makes of the `size` bytes at `text`. */
static void check_unescaped(const char *decoded, const char *text, size_t size)
{
    int wanted_size = 0;
    char *wanted = curl_easy_unescape(NULL, text, (int)size, &wanted_size);
    FUZZ_CHECK(size == 0 ? *decoded == '\0' : span_equal(span_of(decoded), (struct span){wanted, (size_t)wanted_size}),
               "\"%s\" is not \"%.*s\"", decoded, (int)size, text);
    curl_free(wanted);
}

static void check_userinfo(const struct redis_address *address, const char *text)
{
    const char *from = strstr(text, "://") + 3, *at = memrchr(from, '@', strcspn(from, "/?#"));
    FUZZ_CHECK(at || (!address->user && !address->password), "a user from nowhere in \"%s\"", text);
    if (!at)
        return;
    const char *colon = memchr(from, ':', (size_t)(at - from)), *user_end = colon ? colon : at;
    if (address->user)
        check_unescaped(address->user, from, (size_t)(user_end - from));
    if (address->password)
        check_unescaped(address->password, colon + 1, (size_t)(at - colon - 1));
    FUZZ_CHECK(!colon == !address->password, "\"%s\"", text);
}

static void check_redis(const char *text)
{
    struct redis_address address = {0};
    struct error err = {0};
    if (!redis_address_parse(text, &address, &err)) {
        fuzz_check_error(&err);
        FUZZ_CHECK(err.kind == ERROR_CONFIG && !address.text, "%s", err.text);
        return;
    }
    FUZZ_CHECK(!address.path != !address.host, "neither or both of a host and a path in \"%s\"", text);
    FUZZ_CHECK(address.database >= 0 && address.database <= INT32_MAX, "database %lld", (long long)address.database);
    if (address.path) {
        FUZZ_CHECK(address.path[0] == '/' && address.path[1], "\"%s\"", address.path);
        check_unescaped(address.path, text + strlen("unix://"), strcspn(text + strlen("unix://"), "?#"));
    } else {
        FUZZ_CHECK(*address.host && address.port >= 0 && address.port <= 65535, "\"%s\"", text);
        check_userinfo(&address, text);
    }
    FUZZ_CHECK(strncmp(address.text, "redis at ", 9) == 0, "%s", address.text);
    redis_address_done(&address);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    bool redis = fuzz_byte(&in) & 1;
    char *url = fuzz_text(fuzz_span(&in));
    if (redis)
        check_redis(url);
    else
        check_http(url, fuzz_rest(&in));
    free(url);
    return 0;
}
