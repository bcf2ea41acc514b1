/* relay/config/config_warning.h -- what is not safe about a configuration, and yet no reason to refuse it. */
#ifndef RELAY_CONFIG_WARNING_H
#define RELAY_CONFIG_WARNING_H

#include "relay/config/config_exposure.h"

typedef void config_warning_fn(const struct config_warning *warning, void *arg);

/* Calls `report` for each peer, secret file and library that there is something to say of. Connects to nothing. */
void config_warnings(const struct config *config, config_warning_fn *report, void *arg);

#endif
