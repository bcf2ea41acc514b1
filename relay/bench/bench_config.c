#include "relay/bench/bench_config.h"

#include "relay/base/arena.h"
#include "relay/base/suggest.h"
#include "relay/config/config_tables.h"
#include "sinks/sink.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench_config {
    struct config *file; /* NULL: none was given */
    struct config config;
    struct sink_config sink; /* the file's, borrowed, or `discard` */
    struct queue_config queue;
};

static bool unknown_sink(const struct config *file, const char *name, struct error *err)
{
    const char **names = memory_array(file->sink_count + 1, sizeof *names);
    char near[100];
    for (size_t i = 0; i < file->sink_count; i++)
        names[i] = file->sinks[i].name;
    suggest_text(name, names, near, sizeof near);
    free(names);
    return error_set(err, ERROR_USAGE, "bench: %s has no sink \"%s\"%s", file->path, name, near);
}

/* Where the events of this sink's queues go, if that is the same for all. */
static bool find_destination(const struct config *file, const struct sink_config *sink, const char **ret,
                             struct error *err)
{
    const struct queue_config *first = NULL;
    for (size_t i = 0; i < file->queue_count; i++) {
        const struct queue_config *queue = &file->queues[i];
        if (strcmp(queue->sink, sink->name) != 0)
            continue;
        first = first ? first : queue;
        const char *a = first->destination ? first->destination : "", *b = queue->destination ? queue->destination : "";
        if (strcmp(a, b) != 0)
            return error_set(err, ERROR_USAGE,
                             "bench: the queues %s and %s send to \"%s\" and \"%s\" of the sink %s; say where to with "
                             "--destination",
                             first->name, queue->name, a, b, sink->name);
    }
    *ret = first ? first->destination : NULL;
    return *ret || !sink->type->needs_destination ||
           error_set(err, ERROR_USAGE, "bench: the sink %s needs a destination; say where to with --destination",
                     sink->name);
}

static bool take_sink(struct bench_config *bench, const struct bench_config_options *options, struct error *err)
{
    static char discard_name[] = "discard", discard_place[] = "--sink";
    const char *destination = NULL;
    if (!options->sink) {
        bench->sink = (struct sink_config){.name = discard_name,
                                           .type = sink_type_find("discard"),
                                           .settings = &bench->sink, /* it has none */
                                           .place = discard_place};
        setting_defaults(sink_settings, &bench->sink);
        return true;
    }
    const struct sink_config *sink = config_sink(bench->file, options->sink);
    if (!sink)
        return unknown_sink(bench->file, options->sink, err);
    if (!options->destination && !find_destination(bench->file, sink, &destination, err))
        return false;
    bench->sink = *sink;
    bench->queue.destination = memory_text(options->destination ? options->destination : destination);
    return true;
}

static void take_queue(struct bench_config *bench, const struct bench_config_options *options)
{
    struct queue_config *queue = &bench->queue;
    static char place[] = "bench";
    char table[100];
    setting_defaults(queue_settings, queue);
    for (const struct config_group *group = queue_groups; group->name; group++)
        setting_defaults(group->settings, queue);
    setting_defaults(outbox_columns, queue);
    snprintf(table, sizeof table, "%s.events", options->schema);
    queue->name = queue->place = place;
    queue->table = memory_text(table);
    queue->state = options->schema;
    queue->connections = options->connections;
    queue->retry_attempts = 1; /* what is refused ends the bench */
}

static void take_process(struct bench_config *bench, const char *conninfo)
{
    struct config *config = &bench->config;
    setting_defaults(config_settings, config);
    free(config->database);
    config->database = memory_text(conninfo[0] ? conninfo : bench->file->database);
    if (bench->file) {
        config->prepared = bench->file->prepared;
        config->statement_timeout_us = bench->file->statement_timeout_us;
    }
    config->stats_interval_us = 0;
    config->sinks = &bench->sink;
    config->sink_count = 1;
    config->queues = &bench->queue;
    config->queue_count = 1;
}

struct bench_config *bench_config_open(const struct bench_config_options *options, struct error *err)
{
    struct bench_config *bench = memory_new(sizeof *bench);
    bool ok = !options->config_path || (bench->file = config_load(options->config_path, err));
    if (ok) {
        take_queue(bench, options);
        take_process(bench, options->conninfo);
        ok = take_sink(bench, options, err);
        bench->queue.sink = memory_text(bench->sink.name);
    }
    if (ok)
        return bench;
    bench_config_close(bench);
    return NULL;
}

void bench_config_close(struct bench_config *bench_config)
{
    if (!bench_config)
        return;
    setting_free(queue_settings, &bench_config->queue);
    for (const struct config_group *group = queue_groups; group->name; group++)
        setting_free(group->settings, &bench_config->queue);
    setting_free(config_settings, &bench_config->config);
    config_free(bench_config->file);
    free(bench_config);
}

const struct config *bench_config_of(const struct bench_config *bench_config)
{
    return &bench_config->config;
}
