#include "relay/config/config_peers.h"

#include "relay/config/config_mark.h"
#include "relay/postgres/conninfo.h"
#include "sinks/sink.h"

enum { PEER_DATABASE, PEER_LISTEN_DATABASE, PEER_SINKS };

size_t config_peer_count(const struct config *config)
{
    return PEER_SINKS + config->sink_count;
}

static bool sink_exposed(const struct sink_config *sink, struct exposure *ret, char *setting, size_t size)
{
    if (!sink->type->exposed || !sink->type->exposed(sink->settings, ret))
        return false;
    snprintf(setting, size, "sinks.%s.%s", sink->name, ret->setting);
    return true;
}

static bool database_exposed(const char *name, const char *database, struct exposure *ret, char *setting, size_t size)
{
    snprintf(setting, size, "%s", name);
    return database && conninfo_exposed(database, ret);
}

bool config_peer_exposed(const struct config *config, size_t index, struct config_warning *ret)
{
    struct exposure exposure;
    char *setting = ret->setting;
    size_t size = sizeof ret->setting;
    bool exposed = index == PEER_DATABASE ? database_exposed("database", config->database, &exposure, setting, size)
                   : index == PEER_LISTEN_DATABASE
                       ? database_exposed("listen_database", config->listen_database, &exposure, setting, size)
                       : sink_exposed(&config->sinks[index - PEER_SINKS], &exposure, setting, size);
    if (!exposed)
        return false;
    config_mark_where(config, setting, ret->place, sizeof ret->place);
    snprintf(ret->text, sizeof ret->text, "what goes to %s %s", exposure.hosts, exposure.why);
    ret->remedy = exposure.remedy;
    return true;
}
