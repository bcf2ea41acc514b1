#include "relay/bench/bench.h"
#include "relay/bench/bench_config.h"
#include "relay/bench/bench_floor.h"
#include "relay/bench/bench_relay.h"
#include "relay/bench/bench_result.h"
#include "relay/bench/bench_schema.h"
#include "relay/commands/command.h"
#include "relay/commands/database.h"
#include "relay/commands/options.h"
#include "relay/postgres/connect.h"
#include "sinks/sink.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ROW_BYTES 250 /* of an event beside its payload: the row's other columns and two index entries */

struct bench_arguments {
    struct database database;
    struct bench_options options;
    const char *sink, *destination;
    bool clean, json;
};

static const struct number_option {
    const char *name;
    size_t offset;
    int64_t fallback, min, max;
} numbers[] = {
    {"events", offsetof(struct bench_options, events), BENCH_EVENTS, 1, 100000000},
    {"keys", offsetof(struct bench_options, keys), 20000, 1, 100000000},
    {"payload", offsetof(struct bench_options, payload_bytes), 300, 64, 10000000},
    {"connections", offsetof(struct bench_options, connections), 2, 1, 64},
    {"pairs", offsetof(struct bench_options, pairs), 3, 1, BENCH_PAIRS_MAX},
    {"rate", offsetof(struct bench_options, rate), 1000, 0, 1000000},
    {"seconds", offsetof(struct bench_options, seconds), 5, 1, 3600},
};

#define NUMBERS (sizeof numbers / sizeof numbers[0])

static int64_t *number_of(struct bench_arguments *given, const struct number_option *number)
{
    return (int64_t *)((char *)&given->options + number->offset);
}

static void set_defaults(struct bench_arguments *given)
{
    for (size_t i = 0; i < NUMBERS; i++)
        *number_of(given, &numbers[i]) = numbers[i].fallback;
}

static void read_number(const struct option_row *row, void *values, const char *text, struct argp_state *state)
{
    const struct number_option *number = numbers;
    while (strcmp(number->name, row->name) != 0)
        number++;
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < number->min || value > number->max)
        argp_error(state, "--%s is a number from %" PRId64 " to %" PRId64 ", not \"%s\"", number->name, number->min,
                   number->max, text);
    *number_of(values, number) = value;
}

static const struct option_row option_rows[] = {
    {"events", 0, "N", "events in one drain (200000)", .read = read_number},
    {"keys", 0, "N", "keys that they take turns in (20000)", .read = read_number},
    {"payload", 0, "BYTES", "JSON in each of them (300)", .read = read_number},
    {"connections", 0, "N", "of the relay that claim, and of the floor (2)", .read = read_number},
    {"pairs", 0, "N", "drains by the floor and by the relay, in turn (3)", .read = read_number},
    {"rate", 0, "N", "events a second while latency is measured (1000); 0: do not", .read = read_number},
    {"seconds", 0, "N", "for how long (5)", .read = read_number},
    {"sink", 0, "NAME", "deliver to this sink of the configuration, for real; default: to nowhere",
     .offset = offsetof(struct bench_arguments, sink)},
    {"destination", 0, "TEXT", "its topic, stream or path, if not that of the sink's queues",
     .offset = offsetof(struct bench_arguments, destination)},
    {"clean", 0, NULL, "only drop what benches that were killed have left behind",
     .offset = offsetof(struct bench_arguments, clean)},
    {"json", 'j', NULL, "a JSON document, for programs", .offset = offsetof(struct bench_arguments, json)},
    {.name = NULL}};

static void check_options(void *values, struct argp_state *state)
{
    struct bench_arguments *given = values;
    if (given->sink && !given->database.config_path)
        argp_error(state, "--sink is one of a configuration's; give it with -c FILE");
    if (given->destination && !given->sink)
        argp_error(state, "--destination is for a sink; give it with --sink NAME");
    if (given->options.keys > given->options.events)
        given->options.keys = given->options.events;
}

static const struct options options = {
    .rows = option_rows,
    .database = true,
    .check = check_options,
    .doc = "Measures how fast events leave a table of this database, and how soon.\v"
           "Makes a schema of its own, pgcourier_bench_..., and drops it at the end: no table of yours is touched, and "
           "the schema outbox is not needed. Fills a table there and drains it in turn by a plain loop of DELETE ... "
           "RETURNING on as many connections, the floor, and by the relay; then inserts at a steady rate and measures "
           "how long events take from the insert to the sink's ack. Events go nowhere, unless --sink says where to.",
};

/* How much there will be in the database at once, and where the events go. */
static void announce(const struct bench *bench, bool real)
{
    const struct bench_options *o = &bench->options;
    const struct config *config = bench->config;
    char events[BENCH_NUMBER_SIZE], total[BENCH_NUMBER_SIZE];
    int64_t mb = o->events * (o->payload_bytes + ROW_BYTES) / 1000000 + 1;
    fprintf(stderr, "schema %s: %s events, about %" PRId64 " MB, filled %" PRId64 " times\n", bench->schema,
            bench_number((double)o->events, events), mb, 2 * o->pairs);
    if (real)
        fprintf(stderr, "%s events are delivered for real, to the sink %s (%s), destination \"%s\"\n",
                bench_number((double)(o->events * o->pairs + o->rate * o->seconds), total), config->sinks[0].name,
                config->sinks[0].type->name, config->queues[0].destination ? config->queues[0].destination : "");
}

static bool measure_pair(struct bench *bench, struct bench_result *result, struct error *err)
{
    struct bench_pair pair;
    if (!bench_schema_fill(bench, err) || !bench_floor(bench, &pair.floor, err) || !bench_schema_fill(bench, err) ||
        !bench_relay_drain(bench, &pair.relay, err))
        return false;
    result->pairs[result->pair_count++] = pair;
    char floor[BENCH_NUMBER_SIZE], relay[BENCH_NUMBER_SIZE];
    fprintf(stderr, "pair %zu of %" PRId64 ": floor %s/s, relay %s/s\n", result->pair_count, bench->options.pairs,
            bench_number(pair.floor, floor), bench_number(pair.relay, relay));
    return true;
}

static bool measure(struct bench *bench, struct bench_result *result, struct error *err)
{
    while (result->pair_count < (size_t)bench->options.pairs)
        if (!measure_pair(bench, result, err))
            return false;
    result->has_latency = bench->options.rate > 0;
    return !result->has_latency ||
           (bench_schema_empty(bench, err) && bench_relay_latency(bench, &result->latency, err));
}

static void print_result(const struct bench *bench, const struct bench_result *result, bool json)
{
    bench_result_warn(bench, result);
    if (json)
        bench_result_print_json(bench, result);
    else
        bench_result_print(bench, result);
    fflush(stdout);
}

/* Whatever happens in between, the schema is dropped; what keeps it from that is said after the first error. The result
 * comes before it: to drop may take long, and fail. */
static bool measure_and_drop(struct bench *bench, const struct bench_arguments *given, struct bench_result *result,
                             struct error *err)
{
    bool ok = bench_schema_open(bench, err) && bench_relay_check(bench, err);
    if (ok)
        announce(bench, given->sink != NULL);
    ok = ok && measure(bench, result, err);
    if (ok)
        print_result(bench, result, given->json);
    struct error left;
    if (bench_schema_close(bench, &left))
        return ok;
    if (!ok)
        command_fail(err);
    *err = left;
    return false;
}

/* After nohup a terminal that goes away is nothing to stop for, and a signalfd would report it all the same. */
static void keep_ignoring_hangups(void)
{
    struct sigaction action;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    if (sigaction(SIGHUP, NULL, &action) == 0 && action.sa_handler == SIG_IGN)
        sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static bool run_bench(struct bench *bench, const struct bench_arguments *given, struct error *err)
{
    struct bench_result result = {0};
    if (given->clean)
        return bench_schema_clean(bench, true, err);
    return bench_schema_check(bench, &result.server, err) && bench_schema_clean(bench, false, err) &&
           measure_and_drop(bench, given, &result, err);
}

static struct bench_config *open_config(const struct bench_arguments *given, const char *schema, struct error *err)
{
    struct bench_config_options options_of_config = {
        .config_path = given->database.config_path,
        .conninfo = given->database.conninfo,
        .sink = given->sink,
        .destination = given->destination,
        .schema = schema,
        .connections = given->options.connections,
    };
    return database_check(&given->database, "bench", err) ? bench_config_open(&options_of_config, err) : NULL;
}

static int run(int argc, char **argv)
{
    struct bench_arguments given = {0};
    struct log log = {.level = LOG_WARN, .format = LOG_LOGFMT, .fd = STDERR_FILENO};
    struct error err = {0};
    set_defaults(&given);
    options_parse(&options, argc, argv, &given);
    struct bench bench = {.options = given.options, .log = &log, .rng = {command_seed()}, .signal_fd = -1};
    snprintf(bench.schema, sizeof bench.schema, "pgcourier_bench_%d_%08x", (int)getpid(),
             (unsigned)rng_next(&bench.rng));
    struct bench_config *config = open_config(&given, bench.schema, &err);
    if (config) {
        bench.config = bench_config_of(config);
        bench.conn = command_connect(bench.config->database, "bench", &err);
    }
    bool ok = bench.conn && (bench.signal_fd = command_open_signals(&err)) >= 0;
    keep_ignoring_hangups();
    ok = ok && run_bench(&bench, &given, &err);
    PQfinish(bench.conn);
    bench_config_close(config);
    if (bench.signal_fd >= 0)
        close(bench.signal_fd);
    return ok ? EXIT_OK : command_fail(&err);
}

const struct command command_bench = {"bench", "measure how fast this database gives events away", run};
