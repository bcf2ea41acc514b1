#include "relay/config/config_secrets.h"

#include "relay/base/file.h"
#include "relay/config/config_mark.h"
#include "relay/config/config_tables.h"
#include "sinks/sink.h"

#include <stdio.h>
#include <string.h>

/* Properties of librdkafka whose values are files with secrets. */
static const char *const key_properties[] = {"ssl.key.location", "ssl.keystore.location", "sasl.kerberos.keytab"};

static bool ends_with(const char *text, const char *end)
{
    size_t size = strlen(text), end_size = strlen(end);
    return size >= end_size && strcmp(text + size - end_size, end) == 0;
}

static bool is_secret_of(const struct setting *table, const char *name)
{
    const struct setting *setting = setting_find(table, name);
    return setting && setting->kind == SETTING_SECRET;
}

/* "sinks.NAME.rest": the sink, and where the rest begins; no name has a dot in it. */
static const struct sink_config *sink_of(const struct config *config, const char *path, const char **ret_rest)
{
    char name[64];
    int used = 0;
    if (sscanf(path, "sinks.%63[^.].%n", name, &used) != 1 || used == 0)
        return NULL;
    *ret_rest = path + used;
    return config_sink(config, name);
}

static bool names_a_secret(const struct config *config, const char *path)
{
    char setting[200];
    snprintf(setting, sizeof setting, "%s", path);
    if (ends_with(setting, "_file"))
        setting[strlen(setting) - strlen("_file")] = '\0';
    const char *rest = setting;
    const struct sink_config *sink = sink_of(config, setting, &rest);
    if (!sink)
        return ends_with(path, "_file") && is_secret_of(config_settings, setting);
    for (size_t i = 0; i < sizeof key_properties / sizeof key_properties[0]; i++)
        if (strncmp(rest, "properties.", 11) == 0 && strcmp(rest + 11, key_properties[i]) == 0)
            return true;
    return ends_with(path, "_file") && is_secret_of(sink->type->settings, rest);
}

bool config_secret_exposed(const struct config *config, size_t mark, struct config_warning *ret)
{
    const char *path, *file = config_mark_file(config, mark, &path);
    const char *why = file && names_a_secret(config, path) ? file_exposed(file) : NULL;
    if (!why)
        return false;
    config_mark_where(config, path, ret->place, sizeof ret->place);
    snprintf(ret->setting, sizeof ret->setting, "%s", path);
    snprintf(ret->text, sizeof ret->text, "file \"%.300s\" %s", file, why);
    ret->remedy = "chmod 600, or 640 and root's";
    return true;
}
