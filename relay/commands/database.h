/* relay/commands/database.h -- which database a one-shot command talks to: that of a configuration (-c), or another
 * (-d). */
#pragma once

#include "relay/base/error.h"

#include <argp.h>
#include <libpq-fe.h>

#define CONNINFO_BYTES_MAX 4096

struct database {
    const char *config_path;           /* -c, borrowed from argv */
    const char *queue;                 /* that the configuration or the database has to have; NULL: any will do */
    char conninfo[CONNINFO_BYTES_MAX]; /* -d; empty: not given. Moved out of argv, where all can read it */
};

/* A child for the command's own argp; its input is a struct database. One of -c and -d has to be given. */
extern const struct argp database_argp;

/* False and *err (ERROR_USAGE) unless one of them was given, and libpq can read it. */
bool database_check(const struct database *database, const char *command, struct error *err) MUST_CHECK;

/* The same, and connects. NULL and *err on failure; PQfinish() it. `command` is for application_name. */
PGconn *database_connect(const struct database *database, const char *command, struct error *err) MUST_CHECK;
