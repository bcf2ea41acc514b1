#include "relay/bench_relay.h"

#include "relay/bench_load.h"
#include "relay/queue.h"
#include "relay/relay.h"

#include <inttypes.h>

/* One relay and how far it has come. */
struct run {
    struct bench *bench;
    struct log log;
    struct relay *relay;
    const struct queue *queue;
    struct bench_load *load; /* or NULL */
    instant_us now;
    instant_us moved_at; /* when something was delivered last */
    uint64_t delivered;
};

/* The relay goes on, whatever happens to its sink: it is there to stay. A bench is not. */
static bool check_sink(const struct run *run, struct error *err)
{
    const struct metrics *m = &run->queue->metrics;
    const struct outlet *outlet = run->queue->outlet;
    if (outlet->circuit.state != CIRCUIT_CLOSED || outlet->routes)
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
    if (run->queue->metrics.delivered != run->delivered)
        run->moved_at = run->now;
    run->delivered = run->queue->metrics.delivered;
    return run->now - run->moved_at < BENCH_STALL_US ||
           error_set(err, ERROR_TIMEOUT, "bench: nothing was delivered for %d s", (int)(BENCH_STALL_US / SECOND_US));
}

static bool turn(struct run *run, struct error *err)
{
    struct pollset *ps = relay_prepare(run->relay, run->now);
    pollset_add(ps, run->bench->signal_fd, POLLIN);
    if (run->load)
        bench_load_prepare(run->load, ps, run->now);
    if (!pollset_wait(ps, run->now, err))
        return false;
    run->now = clock_now();
    relay_turn(run->relay, run->now);
    return (!run->load || bench_load_turn(run->load, ps, run->now, err)) && check_sink(run, err) &&
           check_progress(run, err) && !bench_is_told(run->bench, err);
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

static bool until_claiming(struct run *run, struct error *err)
{
    while (run->queue->metrics.claims == 0)
        if (!turn(run, err))
            return false;
    return true;
}

static bool until_empty(struct run *run, double *ret_per_second, struct error *err)
{
    uint64_t events = (uint64_t)run->bench->options.events;
    enum relay_end end;
    if (!until_claiming(run, err))
        return false;
    instant_us begun = run->now;
    while (!relay_has_ended(run->relay, run->now, &end)) {
        if (!turn(run, err))
            return false;
        if (run->now == run->moved_at)
            *ret_per_second = (double)events * SECOND_US / (double)(run->now - begun);
    }
    return run->delivered == events ||
           error_set(err, ERROR_INTERNAL, "bench: the relay delivered %" PRIu64 " of %" PRIu64 " events",
                     run->delivered, events);
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
    while (run->queue->metrics.claims == 0 || !bench_load_is_connected(load))
        if (!turn(run, err))
            return false;
    bench_load_begin(load, run->now);
    while (run->delivered < (uint64_t)load->wanted || load->inserted < load->wanted)
        if (!turn(run, err))
            return false;
    return true;
}

bool bench_relay_latency(struct bench *bench, struct bench_latency *ret, struct error *err)
{
    struct run run;
    bool ok = open_run(&run, bench, false, err) && (run.load = bench_load_new(bench, err)) && deliver_load(&run, err);
    if (ok) {
        const struct histogram *lag = &run.queue->metrics.lag_us, *insert = &run.load->insert_us;
        ret->p50_ms = (double)histogram_quantile(lag, 0.5) / MS_US;
        ret->p99_ms = (double)histogram_quantile(lag, 0.99) / MS_US;
        ret->insert_p50_ms = (double)histogram_quantile(insert, 0.5) / MS_US;
        ret->insert_p99_ms = (double)histogram_quantile(insert, 0.99) / MS_US;
        ret->rate = (double)run.load->inserted * SECOND_US / (double)(run.load->ended_at - run.load->begun_at);
    }
    bench_load_free(run.load);
    relay_close(run.relay);
    return ok;
}
