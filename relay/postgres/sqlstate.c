#include "relay/postgres/sqlstate.h"

#include <string.h>

/* The first match wins: single codes before their class. Source: PostgreSQL's errcodes.txt. A corrupted row, or entry
 * of an index, is an internal error: it may be one row's. */
static const struct sqlstate_rule rules[] = {
    /* clang-format off */
    {"26000", DB_UNPREPARED, ERROR_CONFLICT,    "prepared statement is gone: sessions are shared", REFUSAL_NONE},
    {"42P05", DB_UNPREPARED, ERROR_CONFLICT,    "prepared statement exists already: sessions are shared", REFUSAL_NONE},
    {"0A",    DB_FIX,        ERROR_CONFIG,      "the server does not support what it is asked for", REFUSAL_OF_ROW},
    {"25P02", DB_RECONNECT,  ERROR_CONFLICT,    "the transaction has failed before", REFUSAL_NONE},
    {"25P03", DB_RECONNECT,  ERROR_TIMEOUT,     "idle_in_transaction_session_timeout ended the session", REFUSAL_NONE},
    {"25P04", DB_RECONNECT,  ERROR_TIMEOUT,     "transaction_timeout ended the session", REFUSAL_NONE},
    {"25006", DB_RECONNECT,  ERROR_UNREACHABLE, "read-only: a standby, or default_transaction_read_only", REFUSAL_NONE},
    {"25",    DB_RECONNECT,  ERROR_CONFLICT,    "invalid transaction state", REFUSAL_OF_ROW},
    {"53200", DB_SHRINK,     ERROR_RESOURCE,    "out of shared memory: the lock table is full", REFUSAL_BY_LOCK},
    {"53300", DB_RECONNECT,  ERROR_OVERLOADED,  "too many connections", REFUSAL_BY_LOCK},
    {"53",    DB_RETRY,      ERROR_RESOURCE,    "the server is out of something", REFUSAL_BY_LOCK},
    {"55P03", DB_RETRY,      ERROR_CONFLICT,    "lock_timeout: somebody holds a lock on the table or a row; pg_blocking_pids() says who", REFUSAL_BY_LOCK},
    {"55",    DB_RETRY,      ERROR_CONFLICT,    "object in use", REFUSAL_OF_ROW},
    {"57014", DB_RETRY,      ERROR_TIMEOUT,     "statement_timeout or a cancel; pg_blocking_pids() says who holds a lock it waits for", REFUSAL_BY_TIME},
    {"57",    DB_RECONNECT,  ERROR_UNREACHABLE, "the server is shutting down, starting up or ended our session", REFUSAL_BY_LOCK},
    {"58",    DB_RETRY,      ERROR_RESOURCE,    "a system error on the server", REFUSAL_BY_LOCK},
    {"40",    DB_RETRY,      ERROR_CONFLICT,    "serialization failure or deadlock", REFUSAL_BY_LOCK},
    {"08",    DB_RECONNECT,  ERROR_UNREACHABLE, "connection failure", REFUSAL_BY_LOCK},
    {"28",    DB_FIX,        ERROR_PERMISSION,  "authentication failed", REFUSAL_NONE},
    {"3D000", DB_FIX,        ERROR_CONFIG,      "the database does not exist", REFUSAL_NONE},
    {"3F000", DB_FIX,        ERROR_CONFIG,      "the schema does not exist", REFUSAL_NONE},
    {"P0",    DB_FIX,        ERROR_CONFIG,      "a function or trigger of the database objects", REFUSAL_OF_ROW},
    {"23",    DB_RETRY,      ERROR_CONFLICT,    "a constraint of the database objects", REFUSAL_OF_ROW},
    {"22",    DB_RETRY,      ERROR_REFUSED,     "a value that the server cannot read", REFUSAL_OF_ROW},
    {"42501", DB_FIX,        ERROR_PERMISSION,  "a privilege is missing", REFUSAL_OF_ROW},
    {"42",    DB_FIX,        ERROR_CONFIG,      "a table or column is missing or has changed", REFUSAL_OF_ROW},
    {"XX",    DB_RECONNECT,  ERROR_INTERNAL,    "the server reports an internal error", REFUSAL_OF_ROW},
    {"",      DB_RETRY,      ERROR_CONFLICT,    "anything else: roll back and try again", REFUSAL_OF_ROW},
    /* clang-format on */
};

const struct sqlstate_rule sqlstate_stale_plan = {"0A000", DB_RECONNECT, ERROR_CONFLICT,
                                                  "a cached plan no longer fits the table", REFUSAL_NONE};

const struct sqlstate_rule *sqlstate_rule(const char *sqlstate)
{
    static const struct sqlstate_rule lost = {"", DB_RECONNECT, ERROR_UNREACHABLE, "the connection broke",
                                              REFUSAL_NONE};
    if (!sqlstate)
        return &lost;
    const struct sqlstate_rule *rule = rules;
    while (strncmp(sqlstate, rule->prefix, strlen(rule->prefix)) != 0)
        rule++;
    return rule;
}
