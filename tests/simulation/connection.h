/* tests/simulation/connection.h -- the other end of relay/postgres/db.h: what the simulated server says to a
 * connection. */
#ifndef TESTS_SIMULATION_CONNECTION_H
#define TESTS_SIMULATION_CONNECTION_H

#include "relay/base/clock.h"

#include <libpq-fe.h>

struct db;

enum message_kind { MESSAGE_RESULT, MESSAGE_ROUND_END, MESSAGE_NOTIFY, MESSAGE_EOF };

/* It can be read from `at` on; takes `res`. */
void connection_receive(struct db *db, enum message_kind kind, instant_us at, PGresult *res, size_t index);

/* Its backend has ended. */
void connection_detach(struct db *db);

#endif
