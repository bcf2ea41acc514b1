#include "relay/sqlstate.h"

#include <string.h>

/* The first match wins: single codes before their class. Source: PostgreSQL's errcodes.txt. */
static const struct sqlstate_rule rules[] = {
    /* clang-format off */
    {"26000", DB_UNPREPARED, ERROR_CONFLICT,    "prepared statement is gone: sessions are shared", false},
    {"42P05", DB_UNPREPARED, ERROR_CONFLICT,    "prepared statement exists already: sessions are shared", false},
    {"0A000", DB_RECONNECT,  ERROR_CONFLICT,    "a cached plan no longer fits the table", false},
    {"25P03", DB_RECONNECT,  ERROR_TIMEOUT,     "idle_in_transaction_session_timeout ended the session", false},
    {"25006", DB_RECONNECT,  ERROR_UNREACHABLE, "read-only: a standby, or default_transaction_read_only", false},
    {"25",    DB_RECONNECT,  ERROR_CONFLICT,    "invalid transaction state", false},
    {"53200", DB_SHRINK,     ERROR_RESOURCE,    "out of shared memory: the lock table is full", false},
    {"53300", DB_RECONNECT,  ERROR_OVERLOADED,  "too many connections", false},
    {"53",    DB_RETRY,      ERROR_RESOURCE,    "the server is out of something", false},
    {"55P03", DB_RETRY,      ERROR_CONFLICT,    "lock_timeout: somebody locked the table", false},
    {"55",    DB_RETRY,      ERROR_CONFLICT,    "object in use", false},
    {"57014", DB_RETRY,      ERROR_TIMEOUT,     "statement_timeout or a cancel", false},
    {"57",    DB_RECONNECT,  ERROR_UNREACHABLE, "the server is shutting down, starting up or ended our session", false},
    {"58",    DB_RETRY,      ERROR_RESOURCE,    "a system error on the server", false},
    {"40",    DB_RETRY,      ERROR_CONFLICT,    "serialization failure or deadlock", false},
    {"08",    DB_RECONNECT,  ERROR_UNREACHABLE, "connection failure", false},
    {"28",    DB_FIX,        ERROR_PERMISSION,  "authentication failed", false},
    {"3D000", DB_FIX,        ERROR_CONFIG,      "the database does not exist", false},
    {"3F000", DB_FIX,        ERROR_CONFIG,      "the schema does not exist", false},
    {"P0",    DB_FIX,        ERROR_CONFIG,      "a function or trigger of the database objects", true},
    {"23",    DB_RETRY,      ERROR_CONFLICT,    "a constraint of the database objects", true},
    {"22",    DB_RETRY,      ERROR_REFUSED,     "a value that the server cannot read", true},
    {"42501", DB_FIX,        ERROR_PERMISSION,  "a privilege is missing", true},
    {"42",    DB_FIX,        ERROR_CONFIG,      "a table or column is missing or has changed", true},
    {"XX",    DB_RECONNECT,  ERROR_INTERNAL,    "the server reports an internal error", false},
    {"",      DB_RETRY,      ERROR_CONFLICT,    "anything else: roll back and try again", true},
    /* clang-format on */
};

const struct sqlstate_rule *sqlstate_rule(const char *sqlstate)
{
    static const struct sqlstate_rule lost = {"", DB_RECONNECT, ERROR_UNREACHABLE, "the connection broke", false};
    if (!sqlstate)
        return &lost;
    const struct sqlstate_rule *rule = rules;
    while (strncmp(sqlstate, rule->prefix, strlen(rule->prefix)) != 0)
        rule++;
    return rule;
}
