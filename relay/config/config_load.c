#include "ordering/ordering.h"
#include "relay/base/arena.h"
#include "relay/base/file.h"
#include "relay/base/suggest.h"
#include "relay/config/config.h"
#include "relay/config/config_check.h"
#include "relay/config/config_mark.h"
#include "relay/config/config_preset.h"
#include "relay/config/config_read.h"
#include "relay/config/config_tables.h"
#include "relay/config/yaml.h"
#include "sinks/sink.h"

#include <stdlib.h>

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define SINK_TYPES_MAX 64
#define OLDEST_SHARE_UNORDERED 10 /* the others go by priority, which is what they have it for */

/* ---- sinks ---- */

static bool unknown_sink_type(const struct config_place *place, const char *type, struct error *err)
{
    const char *names[SINK_TYPES_MAX + 1] = {NULL};
    char list[ERROR_TEXT_MAX / 4] = "";
    for (size_t i = 0, used = 0; sink_types[i] && i < SINK_TYPES_MAX && used < sizeof list; i++) {
        names[i] = sink_types[i]->name;
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    const char *near = suggest(type, names);
    if (near)
        return config_error(place, err, "no sink type \"%.60s\"; did you mean \"%s\"?", type, near);
    return config_error(place, err, "no sink type \"%.60s\"; write one of %s", type, list);
}

static const struct sink_type *read_sink_type(const struct config_place *place, const struct yaml_node *map,
                                              struct error *err)
{
    const struct sink_type *type = NULL;
    char *name = NULL;
    const struct yaml_pair *pair = yaml_find(map, "type");
    struct config_place at = config_place_of(place, map, "type");
    if (!pair) {
        config_error(place, err, "\"type\" is missing; add it, e.g. type: file");
        return NULL;
    }
    if (config_read_setting(&at, pair->value, sink_type_settings, &name, err)) {
        type = sink_type_find(name);
        if (!type)
            unknown_sink_type(&at, name, err);
    }
    setting_free(sink_type_settings, &name);
    return type;
}

static char *place_text(const struct config_place *place)
{
    size_t size = strlen(place->file) + 32;
    char *text = memory_new(size);
    snprintf(text, size, "%s:%d:%d", place->file, place->line, place->column);
    return text;
}

static bool read_sink(const struct config_place *place, const struct yaml_pair *pair, struct sink_config *sink,
                      struct error *err)
{
    sink->name = memory_text(pair->name);
    sink->place = place_text(place);
    if (!config_check_name(place, pair->name, err) || !config_need_map(place, pair->value, "settings", err))
        return false;
    sink->type = read_sink_type(place, pair->value, err);
    if (!sink->type)
        return false;
    sink->settings = memory_new(sink->type->settings_size);
    setting_defaults(sink->type->settings, sink->settings);
    setting_defaults(sink_settings, sink);
    if (sink->type->max_in_flight > 0)
        sink->max_in_flight = sink->type->max_in_flight;
    const struct config_keys keys[] = {
        {"type", NULL, NULL},
        {NULL, sink_settings, sink},
        {NULL, sink->type->settings, sink->settings},
        {NULL, NULL, NULL},
    };
    return config_read(place, pair->value, keys, err);
}

static bool read_sinks(const struct config_place *top, const struct yaml_node *root, struct config *config,
                       struct error *err)
{
    struct config_place place = config_place_of(top, root, "sinks");
    const struct yaml_pair *sinks = yaml_find(root, "sinks");
    if (!sinks || (sinks->value->kind == YAML_MAP && sinks->value->count == 0))
        return config_error(&place, err, "there is no sink; add one, e.g. log: { type: file, path: \"events.jsonl\" }");
    if (!config_need_map(&place, sinks->value, "names to sinks", err))
        return false;
    config->sinks = memory_array(sinks->value->count, sizeof *config->sinks);
    for (size_t i = 0; i < sinks->value->count; i++) {
        const struct yaml_pair *pair = &sinks->value->pairs[i];
        struct config_place at = config_place_of(&place, sinks->value, pair->name);
        if (!read_sink(&at, pair, &config->sinks[config->sink_count++], err))
            return false;
    }
    return true;
}

/* ---- queues ---- */

static void queue_defaults(struct queue_config *queue)
{
    setting_defaults(queue_settings, queue);
    for (const struct config_group *group = queue_groups; group->name; group++)
        setting_defaults(group->settings, queue);
}

/* Of two settings that bound each other, the one that is written decides. */
static void fit_latency(const struct yaml_node *map, struct queue_config *queue)
{
    const struct yaml_pair *poll = yaml_find(map, "poll");
    bool has_max = poll && poll->value->kind == YAML_MAP && yaml_find(poll->value, "max");
    if (queue->latency_us <= queue->poll_max_us)
        return;
    if (!yaml_find(map, "latency"))
        queue->latency_us = queue->poll_max_us;
    else if (!has_max)
        queue->poll_max_us = queue->latency_us;
}

static bool read_queue(const struct config_place *place, const struct yaml_pair *pair, const struct config *config,
                       struct queue_config *queue, struct error *err)
{
    queue->name = memory_text(pair->name);
    queue->place = place_text(place);
    if (!config_check_name(place, pair->name, err))
        return false;
    queue_defaults(queue);
    if (!config_preset_read(place, pair->value, queue, err))
        return false;
    struct config_keys keys[8] = {{NULL, queue_settings, queue}};
    for (size_t i = 0; queue_groups[i].name; i++)
        keys[i + 1] = (struct config_keys){queue_groups[i].name, queue_groups[i].settings, queue};
    if (!config_read(place, pair->value, keys, err))
        return false;
    if (!queue->table) {
        queue->table = memory_text(outbox_table);
        if (!yaml_find(pair->value, "columns"))
            setting_defaults(outbox_columns, queue);
    }
    queue->unordered = ordering_type_find(queue->ordering)->keyless;
    if (queue->unordered && !yaml_find(pair->value, "oldest_share"))
        queue->oldest_share = OLDEST_SHARE_UNORDERED;
    fit_latency(pair->value, queue);
    return config_check_queue(place, pair->value, config, queue, err);
}

static bool read_queues(const struct config_place *top, const struct yaml_node *root, struct config *config,
                        struct error *err)
{
    struct config_place place = config_place_of(top, root, "queues");
    const struct yaml_pair *queues = yaml_find(root, "queues");
    if (!queues || (queues->value->kind == YAML_MAP && queues->value->count == 0))
        return config_error(&place, err, "there is no queue; add one, e.g. orders: { sink: %s }",
                            config->sinks[0].name);
    if (!config_need_map(&place, queues->value, "names to queues", err))
        return false;
    config->queues = memory_array(queues->value->count, sizeof *config->queues);
    for (size_t i = 0; i < queues->value->count; i++) {
        const struct yaml_pair *pair = &queues->value->pairs[i];
        struct config_place at = config_place_of(&place, queues->value, pair->name);
        if (!read_queue(&at, pair, config, &config->queues[config->queue_count++], err))
            return false;
    }
    return config_link_queues(&place, queues->value, config, err);
}

/* ---- all ---- */

/* Of the top level's `name` or `name_file`, which are not given both. */
static struct config_place place_of_database(const struct config_place *top, const struct yaml_node *root,
                                             const char *name)
{
    char in_file[64];
    snprintf(in_file, sizeof in_file, "%s_file", name);
    const struct yaml_pair *file = yaml_find(root, in_file);
    struct config_place ret = config_place_of(top, root, name);
    if (file) {
        ret.line = file->value->line;
        ret.column = file->value->column;
    }
    return ret;
}

static bool read_top(const char *file, const struct yaml_node *root, struct config *config, struct error *err)
{
    struct config_place top = {.file = file, .line = 1, .column = 1, .path = ""};
    const struct config_keys keys[] = {
        {"sinks", NULL, NULL},
        {"queues", NULL, NULL},
        {NULL, config_settings, config},
        {NULL, NULL, NULL},
    };
    setting_defaults(config_settings, config);
    if (!config_read(&top, root, keys, err))
        return false;
    struct config_place database = place_of_database(&top, root, "database");
    struct config_place listen = place_of_database(&top, root, "listen_database");
    if (!config_check_database(&database, config->database, err))
        return false;
    if (config->listen_database && !config_check_database(&listen, config->listen_database, err))
        return false;
    return read_sinks(&top, root, config, err) && read_queues(&top, root, config, err);
}

struct config *config_load(const char *path, struct error *err)
{
    struct config *config = NULL;
    struct yaml *yaml = NULL;
    size_t size = 0;
    bool good = false;
    char *text = file_read(path, FILE_BYTES_MAX, &size, err);
    if (!text) {
        if (err->kind == ERROR_UNREACHABLE)
            err->kind = ERROR_CONFIG; /* a wrong path, not a server that is away */
        error_prefix(err, "%s", path);
        goto done;
    }
    yaml = yaml_parse(path, text, size, err);
    if (!yaml)
        goto done;
    config = memory_new(sizeof *config);
    config->path = memory_text(path);
    config_mark_all(config, yaml_root(yaml));
    good = read_top(path, yaml_root(yaml), config, err);
done:
    yaml_free(yaml);
    if (text)
        explicit_bzero(text, size);
    free(text);
    if (good)
        return config;
    config_free(config);
    return NULL;
}

static void free_queue(struct queue_config *queue)
{
    setting_free(queue_settings, queue);
    for (const struct config_group *group = queue_groups; group->name; group++)
        setting_free(group->settings, queue);
    free(queue->name);
    free(queue->place);
}

static void free_sink(struct sink_config *sink)
{
    if (sink->settings)
        setting_free(sink->type->settings, sink->settings);
    setting_free(sink_settings, sink);
    free(sink->settings);
    free(sink->place);
    free(sink->name);
}

void config_free(struct config *config)
{
    if (!config)
        return;
    for (size_t i = 0; i < config->queue_count; i++)
        free_queue(&config->queues[i]);
    for (size_t i = 0; i < config->sink_count; i++)
        free_sink(&config->sinks[i]);
    setting_free(config_settings, config);
    config_mark_free(config);
    free(config->queues);
    free(config->sinks);
    free(config->path);
    free(config);
}
