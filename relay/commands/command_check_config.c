#include "relay/commands/check_database.h"
#include "relay/commands/command.h"
#include "relay/commands/options.h"
#include "relay/config/config_preset.h"
#include "relay/config/config_warning.h"
#include "sinks/sink.h"

#include <stdio.h>

struct arguments {
    const char *config;
    bool reference, database;
};

static const struct option_row option_rows[] = {
    {"config", 'c', "FILE", "the configuration to check", .offset = offsetof(struct arguments, config)},
    {"reference", 'r', NULL, "print docs/configuration.md and check nothing",
     .offset = offsetof(struct arguments, reference)},
    {"database", 'd', NULL, "also connect, and check each queue's table",
     .offset = offsetof(struct arguments, database)},
    {.name = NULL}};

static void check_options(void *values, struct argp_state *state)
{
    const struct arguments *arguments = values;
    if (!arguments->reference)
        options_need_config(arguments->config, state);
}

static const struct options options = {
    .rows = option_rows,
    .check = check_options,
    .doc =
        "Says whether a configuration is good, and if not, where and why. Reads the files that it names, and connects "
        "to nothing without --database.",
};

static void print_count(size_t count, const char *name)
{
    printf(", %zu %s%s", count, name, count == 1 ? "" : "s");
}

/* What only the sinks themselves can say. The code of the first that refuses its settings. */
static int check_sinks(const struct config *config)
{
    int code = EXIT_OK;
    for (size_t i = 0; i < config->sink_count; i++) {
        const struct sink_config *sink = &config->sinks[i];
        struct error err;
        if (sink_check(sink->type, sink->name, sink->settings, &err))
            continue;
        fprintf(stderr, "%s: sinks.%s: %s\n", sink->place, sink->name, err.text);
        code = code == EXIT_OK ? exit_code_of(err.kind) : code;
    }
    return code;
}

static void print_warning(const struct config_warning *warning, void *unused)
{
    (void)unused;
    printf("%s: %s: warning: %s  fix: %s\n", warning->place, warning->setting, warning->text, warning->remedy);
}

static int check_config(int argc, char **argv)
{
    struct arguments arguments = {0};
    options_parse(&options, argc, argv, &arguments);
    if (arguments.reference) {
        config_print_reference(stdout);
        return EXIT_OK;
    }
    struct error err;
    struct config *config = config_load(arguments.config, &err);
    if (!config) {
        fprintf(stderr, "%s\n", err.text);
        return exit_code_of(err.kind);
    }
    int code = check_sinks(config);
    if (code != EXIT_OK) {
        config_free(config);
        return code;
    }
    printf("%s: ok", arguments.config);
    print_count(config->sink_count, "sink");
    print_count(config->queue_count, "queue");
    printf("\n");
    for (size_t i = 0; i < config->queue_count; i++)
        config_preset_print(stdout, &config->queues[i]);
    config_warnings(config, print_warning, NULL);
    code = arguments.database ? check_database(config) : EXIT_OK;
    config_free(config);
    return code;
}

const struct command command_check_config = {"check-config", "say whether a configuration is good", check_config};
