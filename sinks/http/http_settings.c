#include "sinks/http/http_settings.h"

#include "relay/base/clock.h"
#include "sinks/http/http_signature.h"
#include "sinks/http/http_url.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const url_schemes[] = {"http", "https", NULL};
static const char *const proxy_schemes[] = {"http", "https", "socks5", "socks5h", NULL};
static const char *const versions[] = {"1.1", "2", NULL};

const struct setting http_setting_rows[] = {
    {"url", SETTING_URL, offsetof(struct http_settings, url), .required = true, .choices = url_schemes,
     .help = "the destination is appended to the path"},
    {"timeout", SETTING_DURATION, offsetof(struct http_settings, timeout_us), "15s", .min = MS_US,
     .max = 3600 * SECOND_US, .help = "for the whole request"},
    {"connect_timeout", SETTING_DURATION, offsetof(struct http_settings, connect_timeout_us), "5s", .min = MS_US,
     .max = 3600 * SECOND_US, .help = "for name, connection and TLS"},
    {"connections", SETTING_COUNT, offsetof(struct http_settings, connections), "256", .min = 1, .max = 10000,
     .help = "requests in flight"},
    {"headers", SETTING_MAP, offsetof(struct http_settings, headers), .help = "for every request"},
    {"bearer_token", SETTING_SECRET, offsetof(struct http_settings, bearer_token),
     .help = "sent as Authorization: Bearer"},
    {"secrets", SETTING_SECRETS, offsetof(struct http_settings, secrets), .max = HTTP_SECRETS_MAX,
     .check = http_secret_check, .help = "`whsec_BASE64`, newest first: [signatures](sinks/http.md#signatures)"},
    {"content_type", SETTING_TEXT, offsetof(struct http_settings, content_type),
     .help = "default by the column's type"},
    {"max_response", SETTING_SIZE, offsetof(struct http_settings, max_response), "64kB", .min = 0,
     .max = INT64_C(1) << 30, .help = "of an answer; with `then_payload: response` more is a failure"},
    {"log_answers", SETTING_BOOL, offsetof(struct http_settings, log_answers), "no",
     .help = "200 bytes of a refusal go into log and dead letter; may contain payloads and tokens"},
    {"ca_file", SETTING_TEXT, offsetof(struct http_settings, ca_file),
     .help = "PEM file of authorities, instead of the system's"},
    {"pinned_public_key", SETTING_TEXT, offsetof(struct http_settings, pinned_public_key),
     .help = "sha256//BASE64, several with ;: besides a valid certificate"},
    {"http_version", SETTING_CHOICE, offsetof(struct http_settings, http_version), "1.1", .choices = versions,
     .help = "2 needs https"},
    {"proxy", SETTING_URL, offsetof(struct http_settings, proxy), .choices = proxy_schemes,
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
