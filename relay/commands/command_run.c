#include "relay/base/descriptor_limit.h"
#include "relay/base/libraries.h"
#include "relay/commands/command.h"
#include "relay/commands/options.h"
#include "relay/commands/version.h"
#include "relay/config/config_warning.h"
#include "relay/relay.h"

#include <stdlib.h>
#include <unistd.h>

struct arguments {
    const char *config;
    bool until_empty;
    int64_t idle_max_us;
    struct log log;
};

static const struct setting idle_setting = {"exit-when-idle", SETTING_DURATION, offsetof(struct arguments, idle_max_us),
                                            .min = 100 * MS_US, .max = INT64_C(365) * 24 * 3600 * SECOND_US};

static void read_log_format(const struct option_row *row, void *values, const char *text, struct argp_state *state)
{
    struct arguments *arguments = values;
    if (!log_format_parse(text, &arguments->log.format))
        argp_error(state, "--%s is logfmt or json, not \"%s\"", row->name, text);
}

static const struct option_row option_rows[] = {
    {"config", 'c', "FILE", "the configuration", .offset = offsetof(struct arguments, config)},
    {"until-empty", 0, NULL, "end when nothing is left to deliver", .offset = offsetof(struct arguments, until_empty)},
    {"exit-when-idle", 0, "DURATION", "end when there was nothing to do for so long", .setting = &idle_setting},
    {"log-format", 0, "FORMAT", "logfmt (default) or json", .read = read_log_format},
    {"log-level", 0, "LEVEL", "error, warn, info (default) or debug", .offset = offsetof(struct arguments, log.level),
     .read = options_read_log_level},
    {.name = NULL}};

static void check_options(void *values, struct argp_state *state)
{
    const struct arguments *arguments = values;
    options_need_config(arguments->config, state);
}

static const struct options options = {
    .rows = option_rows,
    .check = check_options,
    .doc =
        "Delivers the events of every queue in the configuration until it is told to stop.\v"
        "SIGTERM or SIGINT: claim no more, finish what is in flight, settle it, exit 0; a second one: exit at once.\n"
        "SIGHUP: read the configuration again; when it is wrong, the old one stays.",
};

/* A configuration and the relay that runs it. */
struct running {
    struct config *config;
    struct relay *relay;
};

static void running_close(struct running *running)
{
    relay_close(running->relay);
    config_free(running->config);
    *running = (struct running){0};
}

static void log_warning(const struct config_warning *warning, void *arg)
{
    const struct log *log = arg;
    LOG(log, LOG_WARN, "config.warning", log_text("place", warning->place), log_text("setting", warning->setting),
        log_text("text", warning->text), log_text("fix", warning->remedy));
}

static void log_warnings(const struct running *running, struct log *log)
{
    config_warnings(running->config, log_warning, log);
}

static void log_start(const struct arguments *arguments, const struct config *config)
{
    char libraries[200];
    libraries_show(libraries, sizeof libraries);
    LOG(&arguments->log, LOG_INFO, "relay.start", log_text("version", PGCOURIER_VERSION),
        log_text("config", arguments->config), log_int("queues", (int64_t)config->queue_count),
        log_text("libraries", libraries));
}

static bool running_open(const struct arguments *arguments, int signal_fd, struct running *ret, struct error *err)
{
    struct running running = {.config = config_load(arguments->config, err)};
    if (!running.config)
        return false;
    struct relay_options relay_options = {
        .config = running.config,
        .log = &arguments->log,
        .signal_fd = signal_fd,
        .until_empty = arguments->until_empty,
        .idle_max_us = arguments->idle_max_us,
        .notes_queues = true,
        .seed = command_seed(),
    };
    running.relay = relay_open(&relay_options, err);
    if (!running.relay) {
        running_close(&running);
        return false;
    }
    *ret = running;
    return true;
}

/* SIGHUP. The new configuration is opened while the old one still stands; only then does the old one end. */
static enum relay_end reload(struct arguments *arguments, int signal_fd, struct running *running)
{
    struct error err;
    struct running next;
    if (!running_open(arguments, signal_fd, &next, &err)) {
        LOG(&arguments->log, LOG_ERROR, "config.refused", log_text("cause", err.text),
            log_text("effect", "the old configuration stays"));
        relay_reopen_sinks(running->relay);
        return RELAY_RELOAD;
    }
    enum relay_end end = relay_drain(running->relay);
    if (!relay_was_signalled(running->relay)) {
        /* Since `next` was read, the file may have changed again. */
        if (relay_is_to_reload(running->relay))
            relay_reload(next.relay);
        running_close(running);
        *running = next;
        LOG(&arguments->log, LOG_INFO, "config.loaded", log_text("file", arguments->config));
        log_warnings(running, &arguments->log);
        return RELAY_RELOAD;
    }
    running_close(&next);
    return end;
}

static int run(int argc, char **argv)
{
    struct arguments arguments = {.log = {.level = LOG_INFO, .format = LOG_LOGFMT, .fd = STDERR_FILENO}};
    options_parse(&options, argc, argv, &arguments);
    struct error err;
    struct running running;
    descriptor_limit_raise();
    int signal_fd = command_open_signals(&err);
    if (signal_fd < 0 || !running_open(&arguments, signal_fd, &running, &err))
        return command_fail(&err);
    log_start(&arguments, running.config);
    log_warnings(&running, &arguments.log);
    enum relay_end end = RELAY_RELOAD;
    for (;;) {
        end = relay_run(running.relay);
        if (end == RELAY_RELOAD)
            end = reload(&arguments, signal_fd, &running);
        if (end != RELAY_RELOAD)
            break;
    }
    LOG(&arguments.log, LOG_INFO, "relay.end", log_text("drained", end == RELAY_DRAINED ? "yes" : "no"));
    running_close(&running);
    close(signal_fd);
    return end == RELAY_DRAINED ? EXIT_OK : EXIT_TEMPFAIL;
}

const struct command command_run = {
    .name = "run",
    .help = "deliver events until told to stop",
    .run = run,
};
