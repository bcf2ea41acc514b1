#include "relay/base/arena.h"
#include "relay/commands/command.h"
#include "relay/commands/options.h"
#include "relay/config/config_preset.h"
#include "relay/config/config_warning.h"
#include "relay/postgres/connect.h"
#include "relay/table/table.h"
#include "sinks/sink.h"

#include <stdio.h>
#include <stdlib.h>

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

static void print_finding(const char *queue, const struct finding *finding)
{
    printf("%s: %s: %s", queue, finding->level == FINDING_ERROR ? "error" : "warning", finding->text);
    if (finding->remedy[0])
        printf("  fix: %s", finding->remedy);
    putchar('\n');
}

static bool print_error(const struct queue_config *queue, const struct error *err, struct findings *total)
{
    printf("%s: error: %s\n", queue->name, err->text);
    total->errors++;
    return true;
}

/* One queue after the other: tables[i] is the table of queue i, or NULL. */
struct database_check {
    PGconn *conn;
    const struct config *config;
    struct table **tables;
    struct findings total;
};

/* False and *err only when the database failed. A table that cannot serve is a finding too. */
static bool check_queue(struct database_check *check, size_t index, struct error *err)
{
    const struct queue_config *queues = check->config->queues, *queue = &queues[index];
    struct findings *total = &check->total;
    struct table *table = check->tables[index] = table_inspect(check->conn, queue, err);
    if (!table && err->kind == ERROR_CONFIG)
        return print_error(queue, err, total);
    struct findings findings;
    if (!table || !table_check(check->conn, queue, table, &findings, err))
        return false;
    for (size_t i = 0; i < index; i++) {
        if (!check->tables[i] || table_check_shared(check->conn, queue, table, &queues[i], check->tables[i], err))
            continue;
        if (err->kind != ERROR_CONFIG)
            return false;
        print_error(queue, err, total);
    }
    for (size_t i = 0; i < findings.count; i++)
        print_finding(queue->name, &findings.list[i]);
    total->errors += findings.errors;
    total->denied += findings.denied;
    return true;
}

/* Connects, prints one line per finding on stdout, `QUEUE: error|warning: TEXT  fix: SQL`, and returns the exit code:
 * EXIT_CONFIG if there was an error among them. */
static int check_database(const struct config *config)
{
    struct error err = {0};
    PGconn *conn = command_connect(config->database, "check-config", &err);
    if (!conn)
        return command_fail(&err);
    struct database_check check = {
        .conn = conn, .config = config, .tables = memory_array(config->queue_count, sizeof(void *))};
    bool ok = true;
    for (size_t i = 0; ok && i < config->queue_count; i++)
        ok = check_queue(&check, i, &err);
    PQfinish(conn);
    for (size_t i = 0; i < config->queue_count; i++)
        table_free(check.tables[i]);
    free(check.tables);
    if (!ok)
        return command_fail(&err);
    return check.total.errors ? exit_code_of(findings_kind(&check.total)) : EXIT_OK;
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
