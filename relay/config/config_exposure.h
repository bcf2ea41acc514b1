/* relay/config/config_exposure.h -- one thing of a configuration that is not safe. */
#ifndef RELAY_CONFIG_EXPOSURE_H
#define RELAY_CONFIG_EXPOSURE_H

#include "relay/config/config.h"

struct config_warning {
    char place[400];    /* FILE:LINE:COLUMN, or FILE alone where the setting is not in it */
    char setting[200];  /* "database", "sinks.web.url", or the name of a library */
    char text[600];     /* what is wrong; shows no user, no password and no query of a URL */
    const char *remedy; /* what to write or to do instead */
};

#endif
