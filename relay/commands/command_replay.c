#include "relay/base/arena.h"
#include "relay/commands/argument.h"
#include "relay/commands/command.h"
#include "relay/commands/options.h"
#include "relay/commands/replay.h"
#include "relay/postgres/connect.h"
#include "relay/relay.h"

#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AGAIN_MS 1000 /* when all that is left is with a worker */

struct replay_options {
    const char *config_path;
    struct replay_request request;
    const char *resume, *cancel; /* the number of a replay */
    int64_t id, rate;
    char *ids; /* an array's text, ours */
    struct column_moves moves;
    struct log log;
};

static const struct setting rate_setting = {"rate", SETTING_COUNT, offsetof(struct replay_options, rate), .min = 1,
                                            .max = 1000000};
static const struct setting id_setting = {"id", SETTING_COUNT, offsetof(struct replay_options, id), .min = 1,
                                          .max = INT64_MAX};

static void read_rate(const struct option_row *row, void *values, const char *arg, struct argp_state *state)
{
    struct error err;
    char *number = memory_text(arg), *unit = strchr(number, '/');
    if (unit && strcmp(unit, "/s") == 0)
        *unit = '\0';
    if (!setting_parse(&rate_setting, number, values, &err))
        argp_error(state, "--%s %s: write how many events a second, 1/s to %" PRId64 "/s", row->name, arg,
                   rate_setting.max);
    free(number);
}

/* Makes an array's text of them, or adds to it. */
static void add_ids(const struct option_row *row, void *values, const char *arg, struct argp_state *state)
{
    struct replay_options *given = values;
    for (const char *p = arg, *end;; p = end + 1) {
        end = p + strcspn(p, ",");
        if (!argument_is_id(p, (size_t)(end - p)))
            argp_error(state, "--%s %s: write whole numbers of 64 bits with commas between them", row->name, arg);
        if (*end == '\0')
            break;
    }
    size_t size = given->ids ? strlen(given->ids) : 1; /* with its closing brace */
    char *ids = memory_new(size + strlen(arg) + 3);
    snprintf(ids, size + strlen(arg) + 3, "%.*s%s%s}", (int)size - 1, given->ids ? given->ids : "",
             given->ids ? "," : "{", arg);
    free(given->ids);
    given->request.ids = given->ids = ids;
}

static void read_number(const struct option_row *row, void *values, const char *text, struct argp_state *state)
{
    struct error err;
    if (!setting_parse(&id_setting, text, values, &err))
        argp_error(state, "--%s %s: %s; give the number of a replay", row->name, text, err.text);
    *(const char **)((char *)values + row->offset) = text;
}

static void read_column(const struct option_row *row, void *values, const char *text, struct argp_state *state)
{
    struct replay_options *given = values;
    if (!column_moves_add(&given->moves, text))
        argp_error(
            state,
            "--%s \"%s\": write OLD=NEW, OLD= for values that are to be left out, or =NEW for none in column NEW",
            row->name, text);
}

static const struct option_row option_rows[] = {
    {"config", 'c', "FILE", "the configuration", .offset = offsetof(struct replay_options, config_path)},
    {"queue", 'q', "NAME", "the queue whose events they were",
     .offset = offsetof(struct replay_options, request.queue)},
    {"from", 0, "archive|dead", "what was delivered (archive, the default), or dead letters",
     .offset = offsetof(struct replay_options, request.source)},
    {"id", 'i', "ID[,ID...]", "the events with these ids", .read = add_ids, .group = 1},
    {"key", 'k', "KEY", "those of this key", .offset = offsetof(struct replay_options, request.key), .group = 1},
    {"type", 't', "TYPE", "those of this type", .offset = offsetof(struct replay_options, request.type), .group = 1},
    {"since", 0, "TIME", "delivered, or dead, at this time or later; as PostgreSQL reads times",
     .offset = offsetof(struct replay_options, request.since), .group = 1},
    {"until", 0, "TIME", "before this time", .offset = offsetof(struct replay_options, request.until), .group = 1},
    {"to", 0, "SINK", "to another sink of the configuration", .offset = offsetof(struct replay_options, request.sink),
     .group = 2},
    {"destination", 0, "TEXT", "to another destination of the sink; a template as in the queue",
     .offset = offsetof(struct replay_options, request.destination), .group = 2},
    {"column", 0, "OLD=[NEW]",
     "what is in column OLD, which the table has no more or generates now, is sent as column NEW, or not at all",
     .read = read_column, .group = 2},
    {"rate", 0, "N[/s]", "at most so many events a second", .read = read_rate, .group = 2},
    {"dry-run", 0, NULL, "only print how many events there are",
     .offset = offsetof(struct replay_options, request.dry_run), .group = 2},
    {"resume", 0, "N", "go on with replay N; --rate may change", .offset = offsetof(struct replay_options, resume),
     .read = read_number, .group = 3},
    {"cancel", 0, "N", "forget replay N and what is left of it", .offset = offsetof(struct replay_options, cancel),
     .read = read_number, .group = 3},
    {"log-level", 0, "LEVEL", "error, warn (default), info or debug",
     .offset = offsetof(struct replay_options, log.level), .read = options_read_log_level, .group = 4},
    {.name = NULL}};

static bool chooses(const struct replay_request *request)
{
    return request->ids || request->key || request->type || request->since || request->until;
}

static void check_options(void *values, struct argp_state *state)
{
    const struct replay_options *given = values;
    const struct replay_request *request = &given->request;
    const char *went_on = given->resume ? "resume" : given->cancel ? "cancel" : NULL;
    bool made = chooses(request) || request->queue || request->sink || request->destination || request->dry_run ||
                given->moves.from;
    options_need_config(given->config_path, state);
    if (went_on && (made || (given->resume && given->cancel) || (given->cancel && given->rate > 0)))
        argp_error(state, "--%s stands alone%s", went_on, given->cancel ? "" : ", or with --rate");
    if (!went_on && !request->queue)
        argp_error(state, "say of which queue with --queue");
    if (!went_on && !chooses(request))
        argp_error(state, "say which events with --id, --key, --type, --since or --until");
    if (strcmp(request->source, "archive") != 0 && strcmp(request->source, "dead") != 0)
        argp_error(state, "--from is archive or dead, not \"%s\"", request->source);
}

static const struct options options = {
    .rows = option_rows,
    .check = check_options,
    .doc = "Sends archived or dead events of a queue again: under the ids that they had, oldest first within each key, "
           "never while another event of the key is on its way, and with the header pgcourier-replayed."
           "\vWhat is chosen is fixed at the beginning, and has a number. After SIGTERM, SIGINT, a crash, or failures, "
           "--resume goes on where it stopped, and sends again at most what was on its way.\n"
           "Dead letters that go to the queue's own sink are dead letters no more when they are delivered. What is "
           "archived stays.\n"
           "Ends with 64 when there is no such event, and with 75 when something is left to send.",
};

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* Prints what came of the choice. *ret_id is 0: there is nothing to send. */
static bool make(const struct asker *asker, const struct config *config, struct replay_options *given,
                 struct error *err)
{
    const struct replay_request *request = &given->request;
    const char *kind = strcmp(request->source, "dead") == 0 ? "dead" : "archived";
    int64_t events = 0;
    if (!replay_make(asker, config, request, &given->id, &events, err))
        return false;
    if (request->dry_run)
        printf("%s: %" PRId64 " %s event%s would be sent again\n", request->queue, events, kind, plural(events));
    else if (events == 0)
        return error_set(err, ERROR_USAGE, "replay: queue %s has no such %s event", request->queue, kind);
    else
        printf("replay %" PRId64 ": %" PRId64 " %s event%s of %s\n", given->id, events, kind, plural(events),
               request->queue);
    fflush(stdout);
    return true;
}

/* Runs a relay until it can deliver nothing more, or a signal stops it. */
static bool deliver(const struct replay *replay, int signal_fd, const struct log *log, bool *ret_stopped,
                    struct error *err)
{
    const struct relay_options relay_options = {
        .config = replay_config(replay),
        .log = log,
        .signal_fd = signal_fd,
        .until_empty = true,
        .seed = command_seed(),
    };
    struct relay *relay = relay_open(&relay_options, err);
    if (!relay)
        return false;
    while (relay_run(relay) == RELAY_RELOAD)
        relay_reopen_sinks(relay);
    *ret_stopped = relay_was_signalled(relay);
    relay_close(relay);
    return true;
}

/* Why it does not go on, unless it does; then there is nothing to do for a moment. */
static bool may_go_on(const struct replay *replay, const struct replay_left *left, bool stopped, struct error *err)
{
    int64_t n = left->unsent, events = replay_events(replay);
    if (stopped)
        return error_set(err, ERROR_CONFLICT, "stopped, and %" PRId64 " of %" PRId64 " events are left", n, events);
    if (left->paused)
        return error_set(err, ERROR_CONFLICT, "the queue is paused, and %" PRId64 " of %" PRId64 " events are left", n,
                         events);
    if (left->movable == 0 && left->closed == 0)
        return error_set(err, ERROR_CONFLICT, "%" PRId64 " of %" PRId64 " events are left, behind paused keys", n,
                         events);
    if (left->movable == 0)
        return error_set(err, ERROR_CONFLICT,
                         "%" PRId64 " of %" PRId64 " events are left, behind %" PRId64 " key%s closed by failures: %s",
                         n, events, left->closed, plural(left->closed), left->error);
    return true;
}

/* Until all of it is sent. */
static bool send_all(struct replay *replay, int signal_fd, const struct log *log, int64_t *ret_withdrawn,
                     struct error *err)
{
    for (;;) {
        bool stopped = false;
        struct replay_left left;
        if (!deliver(replay, signal_fd, log, &stopped, err) || !replay_look(replay, stopped, &left, err))
            return false;
        *ret_withdrawn = left.withdrawn;
        if (left.unsent == 0)
            return true;
        if (!may_go_on(replay, &left, stopped, err))
            return false;
        poll(&(struct pollfd){.fd = signal_fd, .events = POLLIN}, 1, AGAIN_MS); /* the next relay reads it */
    }
}

/* What has the number that was printed just now, or was taken up. */
static bool say_how_to_go_on(const struct replay_options *given, struct error *err)
{
    return error_set(err, err->kind, "replay %" PRId64 ": %.240s; to go on: pgcourier replay -c %s --resume %" PRId64,
                     given->id, err->text, given->config_path, given->id);
}

static bool go_on(const struct asker *asker, int signal_fd, const struct config *config,
                  const struct replay_options *given, struct error *err)
{
    struct replay *replay = replay_open(asker, config, given->id, given->rate, err);
    if (!replay)
        return given->resume ? false : say_how_to_go_on(given, err);
    int64_t withdrawn = 0, events = replay_events(replay);
    bool ok = send_all(replay, signal_fd, &given->log, &withdrawn, err) && replay_finish(replay, err);
    replay_close(replay);
    if (ok)
        printf("replay %" PRId64 ": all %" PRId64 " event%s sent\n", given->id, events - withdrawn,
               plural(events - withdrawn));
    if (ok && withdrawn > 0)
        printf("replay %" PRId64 ": %" PRId64 " not sent, dead letter%s no more\n", given->id, withdrawn,
               plural(withdrawn));
    return ok || say_how_to_go_on(given, err);
}

static bool cancel(const struct asker *asker, const struct replay_options *given, struct error *err)
{
    int64_t unsent;
    if (!replay_cancel(asker, given->id, &unsent, err))
        return false;
    printf("replay %" PRId64 " is no more; %" PRId64 " of its events %s not sent\n", given->id, unsent,
           unsent == 1 ? "was" : "were");
    return true;
}

static bool act(const struct asker *asker, int signal_fd, const struct config *config, struct replay_options *given,
                struct error *err)
{
    if (given->cancel)
        return cancel(asker, given, err);
    if (!given->resume && !make(asker, config, given, err))
        return false;
    return given->request.dry_run || go_on(asker, signal_fd, config, given, err);
}

/* A signal that comes before ends the process, as nothing is under way. */
static bool act_until_stopped(PGconn *conn, const struct config *config, struct replay_options *given,
                              struct error *err)
{
    int signal_fd = command_open_signals(err);
    int stop_fd = signal_fd >= 0 ? command_open_stop_signals(err) : -1; /* a SIGHUP stops nothing */
    const struct asker asker = {.conn = conn, .what = "replay", .stop_fd = stop_fd};
    bool ok = stop_fd >= 0 && act(&asker, signal_fd, config, given, err);
    if (stop_fd >= 0)
        close(stop_fd);
    if (signal_fd >= 0)
        close(signal_fd);
    return ok;
}

static bool check_times(PGconn *conn, const struct replay_request *request, struct error *err)
{
    const struct argument arguments[] = {
        {"--since", ARGUMENT_TIME, request->since}, {"--until", ARGUMENT_TIME, request->until}, {.name = NULL}};
    return argument_check(conn, "replay", arguments, err);
}

static int run(int argc, char **argv)
{
    struct replay_options given = {.request = {.source = "archive"},
                                   .log = {.level = LOG_WARN, .format = LOG_LOGFMT, .fd = STDERR_FILENO}};
    struct error err = {0};
    options_parse(&options, argc, argv, &given);
    given.request.rate = given.rate;
    given.request.moves = &given.moves;
    struct config *config = config_load(given.config_path, &err);
    const char *queue = given.request.queue;
    bool known = config && (!queue || config_queue(config, queue, &err));
    PGconn *conn = known ? command_connect(config->database, "replay", &err) : NULL;
    bool ok = conn && check_times(conn, &given.request, &err) && act_until_stopped(conn, config, &given, &err);
    PQfinish(conn);
    config_free(config);
    free(given.ids);
    column_moves_done(&given.moves);
    return ok ? EXIT_OK : command_fail(&err);
}

const struct command command_replay = {"replay", "send archived or dead events again", run};
