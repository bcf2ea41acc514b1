/* relay/config/config_warning.h -- what is not safe about a configuration, and yet no reason to refuse it. */
#pragma once

#include "relay/config/config.h"

struct config_warning {
    char place[400];    /* FILE:LINE:COLUMN, or FILE alone where the setting is not in it */
    char setting[200];  /* "database", "sinks.web.url", or the name of a library */
    char text[600];     /* what is wrong; shows no user, no password and no query of a URL */
    const char *remedy; /* what to write or to do instead */
};

typedef void config_warning_fn(const struct config_warning *warning, void *arg);

/* Calls `report` for each peer, secret file and library that there is something to say of. Connects to nothing. */
void config_warnings(const struct config *config, config_warning_fn *report, void *arg);
