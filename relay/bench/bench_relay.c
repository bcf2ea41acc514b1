#include "relay/bench/bench_relay.h"

#include "relay/bench/bench_load.h"
#include "relay/deliver/outlet.h"
#include "relay/queue/queue.h"
#include "relay/relay.h"

#define SPARE_US (2 * SECOND_US) /* beside statement_timeout, for a sink and a slow load */

/* One relay and how far it has come. */
struct run {
    struct bench *bench;
    struct log log;
    struct relay *relay;
    const struct queue *queue;
    struct bench_load *load; /* or NULL */
    instant_us now;
    instant_us moved_at; /* when something was delivered or settled last */
    uint64_t delivered, settled;
};

/* The relay goes on, whatever happens to its sink: it is there to stay. A bench is not. */
static bool check_sink(const struct run *run, struct error *err)
{
    const struct metrics *m = &run->queue->metrics;
    const struct outlet *outlet = run->queue->outlet;
    if (outlet->circuit.state != CIRCUIT_CLOSED || outlet->routes.first)
        return error_set(err, ERROR_OVERLOADED,
                         "bench: the sink %s is down, see the line above; nothing is measured without it",
                         outlet->config->name);
    if (m->retried + m->parked + m->buried > 0)
        return error_set(err, ERROR_OVERLOADED,
                         "bench: the sink %s refuses events, see the line above; nothing is measured without it",
                         outlet->config->name);
    return true;
}

static bool check_progress(struct run *run, struct error *err)
{
    const struct metrics *m = &run->queue->metrics;
    if (m->delivered != run->delivered || m->settled != run->settled)
        run->moved_at = run->now;
    run->delivered = m->delivered;
    run->settled = m->settled;
    int64_t patience_us = run->bench->config->statement_timeout_us + SPARE_US;
    return run->now - run->moved_at < patience_us ||
           error_set(err, ERROR_TIMEOUT, "bench: nothing was delivered for %.1f s", (double)patience_us / SECOND_US);
}

static bool turn(struct run *run, struct error *err)
{
    struct pollset *ps = relay_prepare(run->relay, run->now);
    pollset_add(ps, run->bench->signal_fd, POLLIN);
    if (run->load)
        bench_load_prepare(run->load, ps, run->now);
    bool ok = pollset_wait(ps, run->now, err);
    run->now = clock_now();
    relay_turn(run->relay, run->now);
    return ok && (!run->load || bench_load_turn(run->load, ps, run->now, err)) && check_sink(run, err) &&
           check_progress(run, err) && !bench_is_stopped(run->bench, err);
}

/* What a relay warns of when it opens is the server's, and would be repeated with every run. */
static bool open_run(struct run *run, struct bench *bench, bool until_empty, struct error *err)
{
    *run = (struct run){.bench = bench, .log = *bench->log};
    run->log.level = LOG_ERROR;
    struct relay_options options = {.config = bench->config,
                                    .log = &run->log,
                                    .signal_fd = -1,
                                    .until_empty = until_empty,
                                    .seed = rng_next(&bench->rng)};
    run->relay = relay_open(&options, err);
    if (!run->relay)
        return false;
    run->log.level = bench->log->level;
    run->queue = relay_queue(run->relay, 0);
    run->now = run->moved_at = clock_now();
    return true;
}

bool bench_relay_check(struct bench *bench, struct error *err)
{
    struct run run;
    bool ok = open_run(&run, bench, true, err);
    relay_close(run.relay);
    return ok;
}

/* The time begins with the first claim, when all is connected. Nothing moves after the last settlement; what the relay
 * does then to see that the table is empty is no part of the drain. */
static bool until_empty(struct run *run, double *ret_per_second, struct error *err)
{
    instant_us begun = 0;
    enum relay_end end;
    while (!relay_has_ended(run->relay, run->now, &end)) {
        if (!turn(run, err))
            return false;
        if (begun == 0 && run->queue->metrics.claims > 0)
            begun = run->now;
    }
    if (!bench_check_count(run->bench, "relay", (int64_t)run->settled, err))
        return false;
    *ret_per_second = (double)run->settled * SECOND_US / (double)(run->moved_at - begun);
    return true;
}

bool bench_relay_drain(struct bench *bench, double *ret_per_second, struct error *err)
{
    struct run run;
    bool ok = open_run(&run, bench, true, err) && until_empty(&run, ret_per_second, err);
    relay_close(run.relay);
    return ok;
}

static bool deliver_load(struct run *run, struct error *err)
{
    struct bench_load *load = run->load;
    while (!bench_load_is_over(load, run->now) || run->delivered < (uint64_t)load->inserted) {
        if (!turn(run, err))
            return false;
        if (load->begun_at == 0 && run->queue->metrics.claims > 0 && bench_load_is_connected(load))
            bench_load_begin(load, run->now);
    }
    return true;
}

static struct bench_latency latency_of(const struct run *run)
{
    const struct bench_load *load = run->load;
    const struct histogram *lag = &run->queue->metrics.lag_us, *insert = &load->insert_us;
    return (struct bench_latency){
        .p50_ms = (double)histogram_quantile(lag, 0.5) / MS_US,
        .p99_ms = (double)histogram_quantile(lag, 0.99) / MS_US,
        .insert_p50_ms = (double)histogram_quantile(insert, 0.5) / MS_US,
        .insert_p99_ms = (double)histogram_quantile(insert, 0.99) / MS_US,
        .rate = (double)load->inserted * SECOND_US / (double)(load->ended_at - load->begun_at),
    };
}

bool bench_relay_latency(struct bench *bench, struct bench_latency *ret, struct error *err)
{
    struct run run;
    bool ok = open_run(&run, bench, false, err);
    if (ok) {
        run.load = bench_load_new(bench);
        ok = deliver_load(&run, err);
        if (ok)
            *ret = latency_of(&run);
        bench_load_free(run.load);
    }
    relay_close(run.relay);
    return ok;
}
