#include "sinks/redis/redis_settings.h"

#include "relay/base/clock.h"
#include "sinks/redis/redis_address.h"
#include "sinks/redis/redis_command.h"

static const char *const schemes[] = {"redis", "rediss", "unix", NULL};
static const char *const commands[] = {
    [REDIS_STREAM] = "stream", [REDIS_LIST] = "list", [REDIS_PUBLISH] = "publish", NULL};

const struct setting redis_setting_rows[] = {
    {"url", SETTING_URL, offsetof(struct redis_settings, url), .required = true, .choices = schemes,
     .help = "redis://[user:password@]host[:port][/database] or unix:///path[?db=N]"},
    {"command", SETTING_CHOICE, offsetof(struct redis_settings, command), "stream", .choices = commands,
     .help = "XADD, RPUSH or PUBLISH"},
    {"maxlen", SETTING_COUNT, offsetof(struct redis_settings, maxlen), "0",
     .help = "trim streams to so many entries, read or not: loses events; `0`: never"},
    {"username", SETTING_TEXT, offsetof(struct redis_settings, username),
     .help = "ACL user, instead of the one in url"},
    {"password", SETTING_SECRET, offsetof(struct redis_settings, password), .help = "instead of the one in url"},
    {"timeout", SETTING_DURATION, offsetof(struct redis_settings, timeout_us), "5s", .min = 10 * MS_US,
     .max = 3600 * SECOND_US, .help = "to connect, and for each answer"},
    {"tls_ca", SETTING_TEXT, offsetof(struct redis_settings, tls_ca),
     .help = "PEM file of authorities, instead of the system's"},
    {.name = NULL}};

bool redis_settings_exposed(const void *settings, struct exposure *ret)
{
#ifdef HAVE_HIREDIS_SSL
    static const char remedy[] = "rediss://";
#else
    static const char remedy[] = "a tunnel that ends on this machine: docs/sinks/redis.md#tls";
#endif
    struct redis_address address;
    struct error err;
    if (!redis_address_parse(((const struct redis_settings *)settings)->url, &address, &err))
        return false;
    *ret = (struct exposure){.setting = "url", .why = "is not encrypted: redis:// has no TLS", .remedy = remedy};
    if (!address.tls && address.host)
        exposure_add_host(ret, span_of(address.host));
    redis_address_done(&address);
    return ret->hosts[0] != '\0';
}
