/* relay/config_peers.h -- whom a configuration talks to over a network without TLS that verifies who it is.
 *
 *   for each index below config_peer_count(): config_peer_exposed */
#ifndef RELAY_CONFIG_PEERS_H
#define RELAY_CONFIG_PEERS_H

#include "relay/config.h"

struct config_warning {
    char place[400];    /* FILE:LINE:COLUMN, or FILE alone where the setting is not in it */
    char setting[200];  /* "database", "sinks.web.url" */
    char text[600];     /* what is wrong; shows no user, no password and no query of a URL */
    const char *remedy; /* what to write instead */
};

/* database, listen_database, and the sinks. */
size_t config_peer_count(const struct config *config);

/* Connects to nothing. A sink whose settings are refused when it is opened is not exposed. */
bool config_peer_exposed(const struct config *config, size_t index, struct config_warning *ret);

#endif
