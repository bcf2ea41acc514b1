/* relay/postgres/connect.h -- a connection that waits: for start-up and for one-shot commands. */
#pragma once

#include "relay/base/error.h"

#include <libpq-fe.h>

/* Opens a blocking connection for a one-shot command, application_name pgcourier/COMMAND,
 * client_encoding UTF8 (SQL_ASCII where the database is). NULL and *err on failure, also where conninfo_check() refuses
 * the database, and where the server is too old; PQfinish() it. */
PGconn *command_connect(const char *database, const char *command, struct error *err) MUST_CHECK;
