/* relay/config/config_peers.h -- whom a configuration talks to over a network without TLS that verifies who it is.
 *
 *   for each index below config_peer_count(): config_peer_exposed */
#ifndef RELAY_CONFIG_PEERS_H
#define RELAY_CONFIG_PEERS_H

#include "relay/config/config_exposure.h"

/* database, listen_database, and the sinks. */
size_t config_peer_count(const struct config *config);

/* Connects to nothing. A sink whose settings are refused when it is opened is not exposed. */
bool config_peer_exposed(const struct config *config, size_t index, struct config_warning *ret);

#endif
