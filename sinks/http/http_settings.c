#include "sinks/http/http_settings.h"

#include "relay/base/clock.h"
#include "sinks/http/http_url.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const url_schemes[] = {"http", "https", NULL};
static const char *const proxy_schemes[] = {"http", "https", "socks5", "socks5h", NULL};
static const char *const versions[] = {"1.1", "2", NULL};

const struct setting http_setting_rows[] = {
    {.name = "url",
     .kind = SETTING_URL,
     .offset = offsetof(struct http_settings, url),
     .required = true,
     .choices = url_schemes,
     .help = "the destination is appended to the path"},
    {.name = "timeout",
     .kind = SETTING_DURATION,
     .offset = offsetof(struct http_settings, timeout_us),
     .fallback = "15s",
     .min = MS_US,
     .max = 3600 * SECOND_US,
     .help = "for the whole request"},
    {.name = "connect_timeout",
     .kind = SETTING_DURATION,
     .offset = offsetof(struct http_settings, connect_timeout_us),
     .fallback = "5s",
     .min = MS_US,
     .max = 3600 * SECOND_US,
     .help = "for name, connection and TLS"},
    {.name = "connections",
     .kind = SETTING_COUNT,
     .offset = offsetof(struct http_settings, connections),
     .fallback = "256",
     .min = 1,
     .max = 10000,
     .help = "requests in flight"},
    {.name = "headers",
     .kind = SETTING_MAP,
     .offset = offsetof(struct http_settings, headers),
     .help = "for every request"},
    {.name = "bearer_token",
     .kind = SETTING_SECRET,
     .offset = offsetof(struct http_settings, bearer_token),
     .help = "sent as Authorization: Bearer"},
    {.name = "content_type",
     .kind = SETTING_TEXT,
     .offset = offsetof(struct http_settings, content_type),
     .help = "default by the column's type"},
    {.name = "max_response",
     .kind = SETTING_SIZE,
     .offset = offsetof(struct http_settings, max_response),
     .fallback = "64kB",
     .min = 0,
     .max = INT64_C(1) << 30,
     .help = "of an answer; with `then_payload: response` more is a failure"},
    {.name = "log_answers",
     .kind = SETTING_BOOL,
     .offset = offsetof(struct http_settings, log_answers),
     .fallback = "no",
     .help = "200 bytes of a refusal go into log and dead letter; may contain payloads and tokens"},
    {.name = "ca_file",
     .kind = SETTING_TEXT,
     .offset = offsetof(struct http_settings, ca_file),
     .help = "PEM file of authorities, instead of the system's"},
    {.name = "pinned_public_key",
     .kind = SETTING_TEXT,
     .offset = offsetof(struct http_settings, pinned_public_key),
     .help = "sha256//BASE64, several with ;: besides a valid certificate"},
    {.name = "http_version",
     .kind = SETTING_CHOICE,
     .offset = offsetof(struct http_settings, http_version),
     .fallback = "1.1",
     .choices = versions,
     .help = "2 needs https"},
    {.name = "proxy",
     .kind = SETTING_URL,
     .offset = offsetof(struct http_settings, proxy),
     .choices = proxy_schemes,
     .help = "the environment's proxies are ignored"},
    {.name = NULL},
};

int64_t http_settings_response_max(const void *settings, const char **ret_why)
{
    *ret_why = "its max_response is 0";
    return ((const struct http_settings *)settings)->max_response;
}

bool http_settings_check_pins(const struct http_settings *settings, bool https, struct error *err)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const struct span head = SPAN_LITERAL("sha256//");
    const size_t size = 43; /* of the digits, before one = */
    const char *pin = settings->pinned_public_key;
    if (pin && !https)
        return error_set(err, ERROR_CONFIG, "pinned_public_key: http:// has no keys; write https:// or leave it out");
    while (pin) {
        const char *hash = strncmp(pin, head.data, head.size) == 0 ? pin + head.size : "";
        const char *end = hash + size + 1;
        if (strspn(hash, digits) != size || hash[size] != '=' || (*end && *end != ';'))
            return error_set(err, ERROR_CONFIG,
                             "pinned_public_key: write sha256// and the 44 characters of the key's SHA-256 in base64, "
                             "more keys after a ;");
        pin = *end ? end + 1 : NULL;
    }
    return true;
}

static bool is_https(const char *url)
{
    return strncasecmp(url, "https:", 6) == 0;
}

static void add_host_of(struct exposure *exposure, const char *url)
{
    char *host = http_url_host(url);
    exposure_add_host(exposure, span_of(host));
    free(host);
}

/* Certificates are always verified, so what counts is the scheme. Behind a proxy https stays https, and what the proxy
 * itself is told is its password. */
bool http_settings_exposed(const void *of, struct exposure *ret)
{
    const struct http_settings *settings = of;
    const char *plain_proxy = settings->proxy && !is_https(settings->proxy) ? settings->proxy : NULL;
    if (!is_https(settings->url)) {
        *ret = (struct exposure){"url", "is not encrypted: http:// has no TLS", "https://", ""};
        add_host_of(ret, settings->url);
        if (plain_proxy)
            add_host_of(ret, plain_proxy);
    } else {
        *ret = (struct exposure){"proxy", "includes the proxy's password, which is not encrypted",
                                 "a proxy at https://", ""};
        if (plain_proxy && strchr(plain_proxy, '@'))
            add_host_of(ret, plain_proxy);
    }
    return ret->hosts[0] != '\0';
}
