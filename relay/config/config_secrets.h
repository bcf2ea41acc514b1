/* relay/config/config_secrets.h -- files with secrets that others can get at.
 *
 *   for each index below config->mark_count: config_secret_exposed */
#ifndef RELAY_CONFIG_SECRETS_H
#define RELAY_CONFIG_SECRETS_H

#include "relay/config/config_exposure.h"

/* Does this mark name a file with a secret, `NAME_file` or a key of Kafka's, that somebody else may read or write? */
bool config_secret_exposed(const struct config *config, size_t mark, struct config_warning *ret);

#endif
