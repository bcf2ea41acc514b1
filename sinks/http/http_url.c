#include "sinks/http/http_url.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

/* CURLUE_OK also where the URL has no such part; *ret then stays as it is. */
static CURLUcode part(CURLU *parts, CURLUPart which, unsigned flags, char **ret)
{
    char *text = NULL;
    CURLUcode code = curl_url_get(parts, which, &text, flags);
    if (code == CURLUE_OK)
        *ret = memory_text(text);
    curl_free(text);
    bool absent = code >= CURLUE_NO_SCHEME && code <= CURLUE_NO_FRAGMENT;
    return absent ? CURLUE_OK : code;
}

static char *with_query(const char *base, const char *query)
{
    if (!query)
        return memory_text(base);
    size_t size = strlen(base) + strlen(query) + 2;
    char *joined = memory_new(size);
    snprintf(joined, size, "%s?%s", base, query);
    return joined;
}

/* What was taken before a failure stays in *ret. */
static CURLUcode split(CURLU *parts, struct http_url *ret)
{
    CURLUcode code = part(parts, CURLUPART_USER, CURLU_URLDECODE, &ret->user);
    if (code == CURLUE_OK)
        code = part(parts, CURLUPART_PASSWORD, CURLU_URLDECODE, &ret->password);
    if (code == CURLUE_OK)
        code = part(parts, CURLUPART_QUERY, 0, &ret->query);
    curl_url_set(parts, CURLUPART_USER, NULL, 0);
    curl_url_set(parts, CURLUPART_PASSWORD, NULL, 0);
    curl_url_set(parts, CURLUPART_QUERY, NULL, 0);
    if (code == CURLUE_OK)
        code = part(parts, CURLUPART_URL, CURLU_PATH_AS_IS, &ret->base);
    if (code == CURLUE_OK && !ret->base)
        code = CURLUE_NO_HOST;
    if (code == CURLUE_OK)
        ret->base_with_query = with_query(ret->base, ret->query);
    /* What libcurl has decoded in a host may be a character that it takes in none: %7F. */
    if (code == CURLUE_OK)
        code = curl_url_set(parts, CURLUPART_URL, ret->base, CURLU_PATH_AS_IS);
    return code;
}

bool http_url_init(struct http_url *ret, const char *text, struct error *err)
{
    if (strlen(text) > HTTP_URL_MAX)
        return error_set(err, ERROR_CONFIG, "url: longer than %d bytes", HTTP_URL_MAX);
    CURLU *parts = curl_url();
    if (!parts)
        return error_set(err, ERROR_RESOURCE, "url: out of memory");
    /* The text itself may hold a password, so no message repeats it. */
    bool ok = false;
    struct http_url url = {0};
    char *scheme = NULL, *fragment = NULL;
    CURLUcode code = curl_url_set(parts, CURLUPART_URL, text, CURLU_PATH_AS_IS);
    if (code == CURLUE_OK)
        code = part(parts, CURLUPART_SCHEME, 0, &scheme);
    if (code == CURLUE_OK)
        code = part(parts, CURLUPART_FRAGMENT, 0, &fragment);
    if (code == CURLUE_OK)
        code = split(parts, &url);
    if (code != CURLUE_OK) {
        error_set(err, code == CURLUE_OUT_OF_MEMORY ? ERROR_RESOURCE : ERROR_CONFIG,
                  "url: %s; write http://HOST[:PORT]/PATH or https://...", curl_url_strerror(code));
        goto done;
    }
    if (!scheme || (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)) {
        error_set(err, ERROR_CONFIG, "url: the scheme is not http or https");
        goto done;
    }
    if (fragment) {
        error_set(err, ERROR_CONFIG, "url: a #fragment is never sent; remove it");
        goto done;
    }
    url.https = strcmp(scheme, "https") == 0;
    *ret = url;
    url = (struct http_url){0};
    ok = true;
done:
    http_url_done(&url);
    free(scheme);
    free(fragment);
    curl_url_cleanup(parts);
    return ok;
}

void http_url_done(struct http_url *url)
{
    free(url->base);
    memory_wipe(url->query);
    memory_wipe(url->base_with_query);
    memory_wipe(url->user);
    memory_wipe(url->password);
    *url = (struct http_url){0};
}

char *http_url_host(const char *text)
{
    CURLU *parts = curl_url();
    char *host = NULL;
    if (parts && curl_url_set(parts, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK &&
        part(parts, CURLUPART_HOST, 0, &host) != CURLUE_OK)
        host = NULL;
    curl_url_cleanup(parts);
    return host;
}

/* RFC 3986 pchar without '%', and the slash between segments. */
static bool stays(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-._~!$&'()*+,;=:@/", c));
}

static bool is_one_of(char c, struct span set)
{
    return memchr(set.data, c, set.size) != NULL;
}

/* As a server may see it that turns backslashes into slashes, and takes what follows a semicolon for a parameter and
 * drops it. */
static bool has_dot_segment(struct span path)
{
    for (size_t start = 0, end; start <= path.size; start = end + 1) {
        size_t name_end = start;
        while (name_end < path.size && !is_one_of(path.data[name_end], SPAN_LITERAL("/\\;")))
            name_end++;
        end = name_end;
        while (end < path.size && !is_one_of(path.data[end], SPAN_LITERAL("/\\")))
            end++;
        struct span name = {path.data + start, name_end - start};
        if (span_equal(name, SPAN_LITERAL(".")) || span_equal(name, SPAN_LITERAL("..")))
            return true;
    }
    return false;
}

static bool check_path(struct span path, struct error *err)
{
    for (size_t i = 0; i < path.size; i++)
        if ((unsigned char)path.data[i] < ' ' || path.data[i] == 0x7f)
            return error_set(err, ERROR_REFUSED, "destination: control character 0x%02x at byte %zu of the path",
                             (unsigned)(unsigned char)path.data[i], i + 1);
    if (has_dot_segment(path))
        return error_set(err, ERROR_REFUSED,
                         "destination: a path segment is \".\" or \"..\", or some servers take it for that");
    return true;
}

const char *http_url_join(const struct http_url *url, struct span destination, struct arena *arena, struct error *err)
{
    if (destination.size == 0)
        return url->base_with_query;
    if (destination.data[0] == '/')
        destination = (struct span){destination.data + 1, destination.size - 1};
    if (!check_path(destination, err))
        return NULL;
    size_t base_size = strlen(url->base), query_size = url->query ? strlen(url->query) : 0;
    while (base_size > 0 && url->base[base_size - 1] == '/')
        base_size--;
    if (destination.size > HTTP_URL_MAX) {
        error_set(err, ERROR_REFUSED, "destination: a path of %zu bytes is too long", destination.size);
        return NULL;
    }
    char *text = arena_alloc(arena, base_size + 3 * destination.size + query_size + 3), *out = text;
    memcpy(out, url->base, base_size);
    out += base_size;
    *out++ = '/';
    for (size_t i = 0; i < destination.size; i++) {
        unsigned char c = (unsigned char)destination.data[i];
        if (stays((char)c)) {
            *out++ = (char)c;
            continue;
        }
        *out++ = '%';
        *out++ = "0123456789ABCDEF"[c >> 4];
        *out++ = "0123456789ABCDEF"[c & 15];
    }
    if (url->query) {
        *out++ = '?';
        memcpy(out, url->query, query_size);
        out += query_size;
    }
    if (out - text > HTTP_URL_MAX) {
        error_set(err, ERROR_REFUSED, "destination: a URL of %zu bytes is too long, %d is the most",
                  (size_t)(out - text), HTTP_URL_MAX);
        return NULL;
    }
    return text;
}

void http_url_forget(const struct http_url *url, const char *joined)
{
    if (!joined || joined == url->base_with_query || !url->query)
        return;
    size_t size = strlen(url->query);
    explicit_bzero((char *)(uintptr_t)joined + strlen(joined) - size, size);
}
