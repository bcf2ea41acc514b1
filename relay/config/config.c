#include "relay/config/config.h"

#include "relay/base/arena.h"
#include "relay/base/suggest.h"
#include "sinks/sink.h"

#include <stdlib.h>

bool config_leases(const struct queue_config *queue)
{
    return queue->ordering && strcmp(queue->ordering, "lease") == 0;
}

static const struct queue_config *unknown_queue(const struct config *config, const char *name, struct error *err)
{
    const char **names = memory_array(config->queue_count + 1, sizeof *names);
    char list[ERROR_TEXT_MAX / 2] = "", hint[96];
    for (size_t i = 0, used = 0; i < config->queue_count; i++) {
        names[i] = config->queues[i].name;
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    error_set(err, ERROR_USAGE, "%s has no queue \"%.80s\"%s (its queues: %s)", config->path, name,
              suggest_text(name, names, hint, sizeof hint), list);
    free(names);
    return NULL;
}

const struct queue_config *config_queue(const struct config *config, const char *name, struct error *err)
{
    for (size_t i = 0; i < config->queue_count; i++)
        if (strcmp(config->queues[i].name, name) == 0)
            return &config->queues[i];
    return unknown_queue(config, name, err);
}

const struct sink_config *config_sink(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->sink_count; i++)
        if (strcmp(config->sinks[i].name, name) == 0)
            return &config->sinks[i];
    return NULL;
}
