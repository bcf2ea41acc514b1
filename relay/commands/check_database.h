/* relay/commands/check_database.h -- `pgcourier check-config --database`: are the queues' tables fit to be served? */
#ifndef RELAY_CHECK_DATABASE_H
#define RELAY_CHECK_DATABASE_H

#include "relay/config/config.h"

/* Connects, prints one line per finding on stdout, `QUEUE: error|warning: TEXT  fix: SQL`, and returns the exit code:
 * EXIT_CONFIG if there was an error among them. */
int check_database(const struct config *config);

#endif
