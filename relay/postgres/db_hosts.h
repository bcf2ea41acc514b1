/* relay/postgres/db_hosts.h -- the servers that a connection string names, with their addresses.
 *
 * libpq looks host names up itself, and waits for the name servers. So threads look the names up beforehand, and
 * it is given the addresses beside them (`hostaddr`): of a name with several as many servers, of one that is not known
 * none. A name still serves to verify certificates, to find passwords and for Kerberos. Sockets and addresses in
 * figures are left as they are.
 *
 *   db_hosts_new -> (db_hosts_begin -> (db_hosts_prepare -> poll(2) -> db_hosts_turn)* -> db_hosts_connect)* ->
 *   db_hosts_free */
#pragma once

#include "relay/base/pollset.h"

#include <libpq-fe.h>

/* How long an attempt waits for the first name to be known, and for the others once one is. */
#define DB_HOSTS_PATIENCE_US (10 * SECOND_US)
#define DB_HOSTS_OTHERS_US (2 * SECOND_US)

struct db_hosts;

enum db_hosts_state { DB_HOSTS_PENDING, DB_HOSTS_READY, DB_HOSTS_FAILED };

/* What libpq is told of them; NULL: what the connection string says. */
struct db_hosts_list {
    const char *host, *hostaddr, *port;
};

/* A setting of libpq's, for where the user has none. The last one's name is NULL. */
struct db_default {
    const char *name, *value;
};

struct db_hosts *db_hosts_new(const char *conninfo); /* borrowed */
void db_hosts_free(struct db_hosts *hosts);          /* at any time; NULL is a no-op */

/* A connection is about to be made: reads where to, service file and environment included. What earlier attempts have
 * not waited for to its end is gone on with. */
void db_hosts_begin(struct db_hosts *hosts, instant_us now);

void db_hosts_prepare(const struct db_hosts *hosts, struct pollset *ps);

/* *err when FAILED: not one server is left, and why. */
enum db_hosts_state db_hosts_turn(struct db_hosts *hosts, instant_us now, struct error *err);

/* When READY: PQconnectStartParams(). */
PGconn *db_hosts_connect(const struct db_hosts *hosts, const char *application_name, const struct db_default *defaults);

/* When READY; valid until the next begin. */
struct db_hosts_list db_hosts_list(const struct db_hosts *hosts);

/* The first server of the list has not answered in time, and libpq goes on to the next one only when one has failed. So
 * the next list begins behind it; until settled, when a server has served. */
void db_hosts_pass_over(struct db_hosts *hosts);
void db_hosts_settle(struct db_hosts *hosts);

/* Adds to *err, by which the attempt has failed, which names were left out of the list, and why. */
void db_hosts_explain(const struct db_hosts *hosts, struct error *err);
