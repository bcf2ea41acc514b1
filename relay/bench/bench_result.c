#include "relay/bench/bench_result.h"

#include "sinks/sink.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRAIN_MIN_S 1 /* below it, starting, one checkpoint or one pause of the machine is what is measured */

/* Median and range of something that each pair has. */
struct spread {
    double median, least, most;
};

static double floor_of(const struct bench_pair *pair)
{
    return pair->floor;
}

static double relay_of(const struct bench_pair *pair)
{
    return pair->relay;
}

static double ratio_of(const struct bench_pair *pair)
{
    return pair->relay / pair->floor;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct spread spread_of(const struct bench_result *result, double (*of)(const struct bench_pair *))
{
    double values[BENCH_PAIRS_MAX];
    size_t n = result->pair_count;
    for (size_t i = 0; i < n; i++)
        values[i] = of(&result->pairs[i]);
    qsort(values, n, sizeof values[0], by_size);
    return (struct spread){
        .median = (values[(n - 1) / 2] + values[n / 2]) / 2, .least = values[0], .most = values[n - 1]};
}

const char *bench_number(double value, char *text)
{
    char digits[BENCH_NUMBER_SIZE / 2];
    int size = snprintf(digits, sizeof digits, "%" PRId64, (int64_t)(value + 0.5));
    char *out = text;
    for (int i = 0; i < size && i < (int)sizeof digits - 1; i++) {
        if (i > 0 && (size - i) % 3 == 0)
            *out++ = ',';
        *out++ = digits[i];
    }
    *out = '\0';
    return text;
}

static double fastest(const struct bench_result *result)
{
    double relay = spread_of(result, relay_of).most, floor = spread_of(result, floor_of).most;
    return relay > floor ? relay : floor;
}

static bool is_too_short(const struct bench *bench, const struct bench_result *result)
{
    return (double)bench->options.events < fastest(result) * DRAIN_MIN_S;
}

/* The rate of a short drain is too low, as starting is part of it: the default is enough for many servers. */
void bench_result_warn(const struct bench *bench, const struct bench_result *result)
{
    if (!is_too_short(bench, result))
        return;
    double events = (double)bench->options.events, rate = fastest(result), enough = 2 * DRAIN_MIN_S * rate;
    fprintf(stderr,
            "warning: the shortest drain took %.3f s, and below %d s the numbers are noise: give --events %.0f\n",
            events / rate, DRAIN_MIN_S, enough > BENCH_EVENTS ? enough : BENCH_EVENTS);
}

static void print_rate(const char *what, struct spread spread)
{
    char median[BENCH_NUMBER_SIZE], least[BENCH_NUMBER_SIZE], most[BENCH_NUMBER_SIZE];
    printf("%-18s %12s   %s to %s\n", what, bench_number(spread.median, median), bench_number(spread.least, least),
           bench_number(spread.most, most));
}

static void print_latency(const struct bench *bench, const struct bench_latency *latency)
{
    char rate[BENCH_NUMBER_SIZE], wanted[BENCH_NUMBER_SIZE];
    printf("\n%-18s %9s %9s\n", "latency, ms", "p50", "p99");
    printf("%-18s %9.1f %9.1f   at %s events/s\n", "insert to delivery", latency->p50_ms, latency->p99_ms,
           bench_number(latency->rate, rate));
    printf("%-18s %9.1f %9.1f   until it is committed\n", "the insert alone", latency->insert_p50_ms,
           latency->insert_p99_ms);
    if (latency->rate < 0.95 * (double)bench->options.rate)
        printf("The server took fewer inserts than the %s events/s that were asked for.\n",
               bench_number((double)bench->options.rate, wanted));
}

void bench_result_print(const struct bench *bench, const struct bench_result *result)
{
    const struct bench_options *options = &bench->options;
    const struct bench_server *server = &result->server;
    char events[BENCH_NUMBER_SIZE], keys[BENCH_NUMBER_SIZE], bytes[BENCH_NUMBER_SIZE];
    printf("PostgreSQL %s, fsync %s, synchronous_commit %s, shared_buffers %s, round trip %.2f ms\n", server->version,
           server->fsync, server->synchronous_commit, server->shared_buffers, server->round_trip_ms);
    printf("%s events of %s bytes, %s keys, %" PRId64 " connections, sink %s\n\n",
           bench_number((double)options->events, events), bench_number((double)options->payload_bytes, bytes),
           bench_number((double)options->keys, keys), options->connections, bench->config->sinks[0].name);
    printf("%-18s %12s   range of %zu\n", "drained, events/s", "median", result->pair_count);
    print_rate("relay", spread_of(result, relay_of));
    print_rate("floor", spread_of(result, floor_of));
    struct spread ratio = spread_of(result, ratio_of);
    printf("%-18s %12.2f   %.2f to %.2f\n", "relay / floor", ratio.median, ratio.least, ratio.most);
    if (result->has_latency)
        print_latency(bench, &result->latency);
}

static json_t *spread_json(struct spread spread)
{
    return json_pack("{s:f, s:f, s:f}", "median", spread.median, "least", spread.least, "most", spread.most);
}

static json_t *latency_json(const struct bench_latency *latency)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "rate", latency->rate, "p50_ms", latency->p50_ms, "p99_ms",
                     latency->p99_ms, "insert_p50_ms", latency->insert_p50_ms, "insert_p99_ms", latency->insert_p99_ms);
}

static json_t *server_json(const struct bench_server *server)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:f}", "version", server->version, "fsync", server->fsync,
                     "synchronous_commit", server->synchronous_commit, "shared_buffers", server->shared_buffers,
                     "round_trip_ms", server->round_trip_ms);
}

void bench_result_print_json(const struct bench *bench, const struct bench_result *result)
{
    const struct bench_options *options = &bench->options;
    json_t *document = json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:o, s:o, s:b, s:o}", "server", server_json(&result->server),
        "events", (json_int_t)options->events, "keys", (json_int_t)options->keys, "payload_bytes",
        (json_int_t)options->payload_bytes, "connections", (json_int_t)options->connections, "pairs",
        (json_int_t)result->pair_count, "sink", bench->config->sinks[0].name, "relay",
        spread_json(spread_of(result, relay_of)), "floor", spread_json(spread_of(result, floor_of)), "ratio",
        spread_json(spread_of(result, ratio_of)), "too_short", (int)is_too_short(bench, result), "latency",
        result->has_latency ? latency_json(&result->latency) : json_null());
    json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    putchar('\n');
    json_decref(document);
}
