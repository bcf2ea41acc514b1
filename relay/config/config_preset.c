#include "relay/config/config_preset.h"

#include "relay/config/config_preset_names.h"
#include "relay/config/config_tables.h"

#include <string.h>

struct preset_setting {
    const char *group; /* NULL: the queue's own */
    const char *name, *value;
};

struct preset {
    const char *name;
    struct preset_setting settings[12]; /* up to a row whose name is NULL */
};

const char *const config_preset_names[] = {"debezium", "eventuate",   "open-outbox", "workqueue",
                                           "task",     "tasks_queue", NULL};

static const struct preset presets[] = {
    {"debezium",
     {{NULL, "table", "public.outbox"},
      {NULL, "destination", "outbox.event.{aggregatetype}"},
      {"columns", "id", "seq"},
      {"columns", "event_id", "id"},
      {"columns", "key", "aggregateid"},
      {"columns", "type", "type"},
      {"columns", "payload", "payload"}}},
    {"eventuate",
     {{NULL, "table", "eventuate.message"},
      {NULL, "where", "published = 0"},
      {NULL, "destination", "{destination}"},
      {"columns", "id", "dbid"},
      {"columns", "event_id", "id"},
      {"columns", "payload", "payload"},
      {"columns", "headers", "headers"}}},
    {"open-outbox",
     {{NULL, "table", "public.openoutbox_events"},
      {NULL, "where", "status = 'PENDING'"},
      {NULL, "destination", "{event_type}"},
      {"columns", "id", "seq"},
      {"columns", "event_id", "event_id"},
      {"columns", "key", "partition_key"},
      {"columns", "type", "event_type"},
      {"columns", "payload", "payload"},
      {"columns", "headers", "headers"},
      {"columns", "not_before", "available_at"}}},
    {"workqueue",
     {{NULL, "table", "public.workqueue"},
      {NULL, "where", "locked_by is null"},
      {"columns", "id", "id"},
      {"columns", "payload", "payload"},
      {"columns", "created_at", "enqueued_at"}}},
    {"task",
     {{NULL, "table", "public.task"},
      {NULL, "where", "status = 'new'"},
      {"columns", "id", "id"},
      {"columns", "type", "type"},
      {"columns", "payload", "payload"},
      {"columns", "created_at", "created_at"}}},
    {"tasks_queue",
     {{NULL, "table", "public.tasks_queue"},
      {NULL, "where", "status = 'queued'"},
      {"columns", "id", "id"},
      {"columns", "type", "type"},
      {"columns", "payload", "payload"},
      {"columns", "created_at", "created_at"}}},
};

static const struct preset *find(const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL; /* LCOV_EXCL_LINE */
}

static const struct setting *find_setting(const struct preset_setting *row)
{
    for (const struct config_group *group = queue_groups; row->group && group->name; group++)
        if (strcmp(group->name, row->group) == 0)
            return setting_find(group->settings, row->name);
    return setting_find(queue_settings, row->name);
}

bool config_preset_read(const struct config_place *place, const struct yaml_node *map, struct queue_config *queue,
                        struct error *err)
{
    const struct yaml_pair *pair = map->kind == YAML_MAP ? yaml_find(map, "preset") : NULL;
    if (!pair)
        return true;
    struct config_place at = config_place_of(place, map, "preset");
    if (!config_read_setting(&at, pair->value, setting_find(queue_settings, "preset"), queue, err))
        return false;
    for (const struct preset_setting *row = find(queue->preset)->settings; row->name; row++)
        if (!setting_parse(find_setting(row), row->value, queue, err))
            return false; /* LCOV_EXCL_LINE: a preset that does not parse is a bug */
    return true;
}

/* `value` of a row; NULL: what is in force in `queue`, as all rows are texts. */
static void print_rows(FILE *out, const struct preset *preset, const struct queue_config *queue)
{
    const char *group = NULL;
    for (const struct preset_setting *row = preset->settings; row->name; row++) {
        const char *value = queue ? *(char *const *)((const char *)queue + find_setting(row)->offset) : row->value;
        bool opens = row->group && !group;
        fprintf(out, "%s%s%s%s: \"%s\"", row == preset->settings ? "" : ", ", opens ? row->group : "",
                opens ? ": { " : "", row->name, value);
        group = row->group;
    }
    fputs(group ? " }" : "", out);
}

void config_preset_print(FILE *out, const struct queue_config *queue)
{
    if (!queue->preset)
        return;
    fprintf(out, "%s: preset %s: ", queue->name, queue->preset);
    print_rows(out, find(queue->preset), queue);
    fputc('\n', out);
}

void config_preset_print_reference(FILE *out)
{
    fputs("\n### Presets\n\nSettings of the queue take precedence. [presets.md](presets.md) has the tables.\n\n| name "
          "| settings |\n|---|---|\n",
          out);
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        fprintf(out, "| `%s` | `", presets[i].name);
        print_rows(out, &presets[i], NULL);
        fputs("` |\n", out);
    }
}
