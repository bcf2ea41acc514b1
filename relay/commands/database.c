#include "relay/commands/database.h"

#include "relay/commands/command.h"
#include "relay/commands/other_queue.h"
#include "relay/config/config.h"
#include "relay/postgres/connect.h"
#include "relay/postgres/conninfo.h"

#include <string.h>

static const struct argp_option options[] = {{"config", 'c', "FILE", 0, "the configuration, for its database", 0},
                                             {"database", 'd', "CONNINFO", 0, "a libpq connection string or URI", 0},
                                             {0}};

/* What `ps` and /proc/PID/cmdline show of it from now on is nothing. */
static void take_conninfo(struct database *database, char *arg, const struct argp_state *state)
{
    size_t size = strlen(arg);
    if (size >= sizeof database->conninfo)
        argp_error(state, "-d: longer than %d bytes", CONNINFO_BYTES_MAX - 1);
    else
        memcpy(database->conninfo, arg, size + 1);
    memset(arg, '*', size);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct database *database = state->input;
    switch (key) {
    case 'c':
        database->config_path = arg;
        return 0;
    case 'd':
        take_conninfo(database, arg, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp database_argp = {options, parse, NULL, NULL, NULL, NULL, NULL};

bool database_check(const struct database *database, const char *command, struct error *err)
{
    if (!database->conninfo[0])
        return database->config_path || error_set(err, ERROR_USAGE, "%s: give -c FILE or -d CONNINFO", command);
    const char *why = conninfo_refusal(database->conninfo);
    return !why || error_set(err, ERROR_USAGE, "%s: -d: %s", command, why);
}

PGconn *database_connect(const struct database *database, const char *command, struct error *err)
{
    if (!database_check(database, command, err))
        return NULL;
    if (database->conninfo[0])
        return command_connect(database->conninfo, command, err);
    struct config *config = config_load(database->config_path, err);
    if (!config)
        return NULL;
    PGconn *conn = command_connect(config->database, command, err);
    if (conn && database->queue && !other_queue_check(conn, config, database->queue, err)) {
        PQfinish(conn);
        conn = NULL;
    }
    config_free(config);
    return conn;
}
