#include "relay/config/config_warning.h"

#include "relay/base/libraries.h"
#include "relay/config/config_peers.h"
#include "relay/config/config_secrets.h"

#include <stdio.h>

void config_warnings(const struct config *config, config_warning_fn *report, void *arg)
{
    struct config_warning warning;
    for (size_t i = 0; i < config_peer_count(config); i++)
        if (config_peer_exposed(config, i, &warning))
            report(&warning, arg);
    for (size_t i = 0; i < config->mark_count; i++)
        if (config_secret_exposed(config, i, &warning))
            report(&warning, arg);
    warning = (struct config_warning){.setting = "libpq", .remedy = "update it"};
    snprintf(warning.place, sizeof warning.place, "%s", config->path);
    if (libraries_libpq_is_bad(PQlibVersion(), warning.text, sizeof warning.text))
        report(&warning, arg);
}
