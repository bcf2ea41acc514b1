#include "sinks/redis/redis_verdict.h"

#define REPLY_TEXT_MAX 200

/* An error reply means that nothing was stored, so none of these is UNKNOWN. Only what Redis says about this command
 * and no other is the event's fault; the first row that fits wins. An error that is not here may be a proxy's and pass,
 * so it counts an attempt of the event and no more.
 *
 * In a script, which is how a run goes, Redis words two errors differently: up to 6 without ERR, 7.0 with it, 7.2 with
 * "ACL failure in script". Valkey leaves out the name Redis. */
static const struct redis_verdict rules[] = {
    /* clang-format off */
    {"LOADING",                                 VERDICT_RETRY,    ERROR_OVERLOADED,  NULL,                                                    false},
    {"BUSY",                                    VERDICT_RETRY,    ERROR_OVERLOADED,  NULL,                                                    false},
    {"TRYAGAIN",                                VERDICT_RETRY,    ERROR_OVERLOADED,  NULL,                                                    false},
    {"MASTERDOWN",                              VERDICT_RETRY,    ERROR_OVERLOADED,  NULL,                                                    false},
    {"NOREPLICAS",                              VERDICT_RETRY,    ERROR_OVERLOADED,  NULL,                                                    false},
    {"CLUSTERDOWN",                             VERDICT_RETRY,    ERROR_OVERLOADED,  NULL,                                                    false},
    {"MISCONF",                                 VERDICT_RETRY,    ERROR_OVERLOADED,  NULL,                                                    false},
    {"OOM",                                     VERDICT_RETRY,    ERROR_OVERLOADED,  "raise maxmemory, or consume and trim the streams",      false},
    {"ERR max number of clients reached",       VERDICT_RETRY,    ERROR_OVERLOADED,  "raise maxclients",                                      false},
    {"READONLY",                                VERDICT_RETRY,    ERROR_UNREACHABLE, "this server is a replica; give the primary's address",  true},
    {"NOAUTH",                                  VERDICT_RETRY,    ERROR_ROUTE,       "set password, and username if the server uses ACLs",    true},
    {"WRONGPASS",                               VERDICT_RETRY,    ERROR_ROUTE,       "check username and password",                           true},
    {"NOPERM",                                  VERDICT_RETRY,    ERROR_ROUTE,       "let the user do this in the server's ACL",              false},
    {"The user executing the script",           VERDICT_RETRY,    ERROR_ROUTE,       "let the user do this in the server's ACL",              false},
    {"ERR The user executing the script",       VERDICT_RETRY,    ERROR_ROUTE,       "let the user do this in the server's ACL",              false},
    {"ERR ACL failure in script",               VERDICT_RETRY,    ERROR_ROUTE,       "let the user do this in the server's ACL",              false},
    {"DENIED",                                  VERDICT_RETRY,    ERROR_ROUTE,       "the server is in protected mode: set a password there", true},
    {"MOVED",                                   VERDICT_RETRY,    ERROR_ROUTE,       "Redis Cluster is not supported; give a single primary", false},
    {"ASK",                                     VERDICT_RETRY,    ERROR_ROUTE,       "Redis Cluster is not supported; give a single primary", false},
    {"WRONGTYPE",                               VERDICT_RETRY,    ERROR_ROUTE,       "choose another destination or remove that key",         false},
    {"ERR unknown command",                     VERDICT_RETRY,    ERROR_ROUTE,       "this server does not have it; streams need Redis 5",    false},
    {"Unknown Redis command called from",       VERDICT_RETRY,    ERROR_ROUTE,       "this server does not have it; streams need Redis 5",    false},
    {"ERR Unknown Redis command called from",   VERDICT_RETRY,    ERROR_ROUTE,       "this server does not have it; streams need Redis 5",    false},
    {"ERR Unknown command called from",         VERDICT_RETRY,    ERROR_ROUTE,       "this server does not have it; streams need Redis 5",    false},
    {"ERR Protocol error: invalid bulk length", VERDICT_REJECTED, ERROR_REFUSED,     "raise proto-max-bulk-len",                              false},
    {"ERR string exceeds maximum allowed size", VERDICT_REJECTED, ERROR_REFUSED,     "raise proto-max-bulk-len",                              false},
    {"ERR Element too large",                   VERDICT_REJECTED, ERROR_REFUSED,     NULL,                                                    false},
    {"ERR Elements are too large",              VERDICT_REJECTED, ERROR_REFUSED,     NULL,                                                    false},
    {"ERR syntax error",                        VERDICT_REJECTED, ERROR_REFUSED,     NULL,                                                    false},
    {"ERR value is not an integer",             VERDICT_REJECTED, ERROR_REFUSED,     NULL,                                                    false},
    {"ERR wrong number of arguments",           VERDICT_REJECTED, ERROR_REFUSED,     NULL,                                                    false},
    {"Wrong number of args",                    VERDICT_REJECTED, ERROR_REFUSED,     NULL,                                                    false},
    {"ERR Wrong number of args",                VERDICT_REJECTED, ERROR_REFUSED,     NULL,                                                    false},
    {"",                                        VERDICT_RETRY,    ERROR_REFUSED,     NULL,                                                    false},
    /* clang-format on */
};

static bool starts_with_words(struct span reply, const char *prefix)
{
    size_t size = strlen(prefix);
    if (reply.size < size || memcmp(reply.data, prefix, size) != 0)
        return false;
    return size == 0 || reply.size == size || strchr(" ,:", reply.data[size]) != NULL;
}

const struct redis_verdict *redis_verdict_find(struct span reply)
{
    const struct redis_verdict *rule = rules;
    while (!starts_with_words(reply, rule->prefix))
        rule++;
    return rule;
}

void redis_verdict_explain(const struct redis_verdict *rule, struct span reply, struct error *ret_cause)
{
    static const char arguments[] = ", with args";
    const char *cut = reply.size ? memmem(reply.data, reply.size, arguments, sizeof arguments - 1) : NULL;
    size_t size = cut ? (size_t)(cut - reply.data) : reply.size;
    if (size > REPLY_TEXT_MAX)
        size = REPLY_TEXT_MAX;
    error_set(ret_cause, rule->kind, rule->hint ? "%.*s; %s" : "%.*s", (int)size, reply.data, rule->hint);
}
