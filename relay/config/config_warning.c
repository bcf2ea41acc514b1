#include "relay/config/config_warning.h"

#include "relay/base/file.h"
#include "relay/base/libraries.h"
#include "relay/config/config_mark.h"
#include "relay/config/config_tables.h"
#include "relay/postgres/conninfo.h"
#include "sinks/sink.h"

#include <stdio.h>
#include <string.h>

/* Says of a peer that what goes to it could be read or changed on the way. */
static void report_exposure(const struct config *config, const char *setting, const struct exposure *exposure,
                            config_warning_fn *report, void *arg)
{
    struct config_warning warning = {.remedy = exposure->remedy};
    snprintf(warning.setting, sizeof warning.setting, "%s", setting);
    config_mark_where(config, setting, warning.place, sizeof warning.place);
    snprintf(warning.text, sizeof warning.text, "what goes to %s %s", exposure->hosts, exposure->why);
    report(&warning, arg);
}

static void warn_of_database(const struct config *config, const char *setting, const char *database,
                             config_warning_fn *report, void *arg)
{
    struct exposure exposure;
    if (database && conninfo_exposed(database, &exposure))
        report_exposure(config, setting, &exposure, report, arg);
}

/* A sink whose settings are refused when it is opened is not exposed. */
static void warn_of_sink(const struct config *config, const struct sink_config *sink, config_warning_fn *report,
                         void *arg)
{
    struct exposure exposure;
    char setting[200];
    if (!sink->type->exposed || !sink->type->exposed(sink->settings, &exposure))
        return;
    snprintf(setting, sizeof setting, "sinks.%s.%s", sink->name, exposure.setting);
    report_exposure(config, setting, &exposure, report, arg);
}

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
    return setting && setting_is_secret(setting);
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

/* Does this mark name a file with a secret, `NAME_file` or a key of Kafka's, that others may read or write? */
static bool secret_exposed(const struct config *config, size_t mark, struct config_warning *ret)
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

void config_warnings(const struct config *config, config_warning_fn *report, void *arg)
{
    struct config_warning warning;
    warn_of_database(config, "database", config->database, report, arg);
    warn_of_database(config, "listen_database", config->listen_database, report, arg);
    for (size_t i = 0; i < config->sink_count; i++)
        warn_of_sink(config, &config->sinks[i], report, arg);
    for (size_t i = 0; i < config->mark_count; i++)
        if (secret_exposed(config, i, &warning))
            report(&warning, arg);
    warning = (struct config_warning){.setting = "libpq", .remedy = "update it"};
    snprintf(warning.place, sizeof warning.place, "%s", config->path);
    if (libraries_libpq_is_bad(PQlibVersion(), warning.text, sizeof warning.text))
        report(&warning, arg);
}
