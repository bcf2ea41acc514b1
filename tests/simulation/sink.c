#include "tests/simulation/sink.h"

#include "tests/simulation/judge.h"
#include "tests/simulation/world.h"

#include <assert.h>
#include <stdlib.h>

#define FLIGHTS_MAX 1024

/* A delivery under way. */
struct flight {
    struct delivery *d; /* NULL: its verdict is given, or its relay is gone */
    const struct sim_sink *sink;
    int process;
    int key;
    int64_t id;
    bool follows;          /* one of its key was under way, without which it does not arrive */
    instant_us arrives_at; /* INSTANT_NEVER: it does not, or it has */
    instant_us verdict_at;
    enum verdict verdict;
    enum error_kind kind;
    int64_t retry_after_us;
};

static struct {
    struct flight flights[FLIGHTS_MAX];
    size_t count;
    instant_us away_until;
    bool hangs;
    int slow_left; /* deliveries of plan.slow_key that take seconds */
} network;

struct sim_sink {
    struct sink sink;
    int process;
    bool asked; /* a probe is under way */
};

void network_clear(void)
{
    network.count = 0;
    network.away_until = 0;
    network.slow_left = 2;
}

void network_outage(int64_t for_us, bool hangs)
{
    network.away_until = sim.now + for_us;
    network.hangs = hangs;
}

static struct flight *next_arrival(void)
{
    struct flight *next = NULL;
    for (size_t i = 0; i < network.count; i++) {
        struct flight *flight = &network.flights[i];
        if (flight->arrives_at != INSTANT_NEVER && (!next || flight->arrives_at < next->arrives_at))
            next = flight;
    }
    return next;
}

instant_us network_next(void)
{
    const struct flight *next = next_arrival();
    return next ? next->arrives_at : INSTANT_NEVER;
}

static void forget_if_over(struct flight *flight)
{
    if (!flight->d && flight->arrives_at == INSTANT_NEVER)
        *flight = network.flights[--network.count];
}

void network_step(void)
{
    struct flight *flight = next_arrival();
    judge_arrived(flight->process, flight->id, flight->d && sim.plan.calls_back);
    flight->arrives_at = INSTANT_NEVER;
    forget_if_over(flight);
}

/* ---- what becomes of a delivery ---- */

static void is_taken(struct flight *flight, int64_t after_us)
{
    flight->arrives_at = sim.now + after_us;
    flight->verdict_at = flight->arrives_at + sim_draw(50, 2 * MS_US);
    flight->verdict = VERDICT_ACKED;
}

static void is_not_taken(struct flight *flight, enum verdict verdict, enum error_kind kind, int64_t after_us)
{
    flight->verdict = verdict;
    flight->kind = kind;
    flight->verdict_at = sim.now + after_us;
}

/* The sender does not learn whether it arrived; it may even arrive after that. */
static void is_unknown(struct flight *flight)
{
    static const enum error_kind kinds[] = {ERROR_TIMEOUT, ERROR_UNREACHABLE, ERROR_PROTOCOL};
    is_not_taken(flight, VERDICT_UNKNOWN, kinds[sim_draw(0, 2)], sim_draw(200, 300 * MS_US));
    if (sim_chance(600))
        flight->arrives_at = sim.now + sim_draw(100, sim_chance(200) ? 900 * MS_US : flight->verdict_at - sim.now);
}

/* Some events fail whatever happens, until the calm or for ever. */
static bool is_poison(struct flight *flight)
{
    uint64_t mark = (uint64_t)flight->id * UINT64_C(0x9e3779b97f4a7c15) ^ sim.seed;
    struct rng rng = {mark};
    if (rng_next(&rng) % 1000 >= sim.plan.poison)
        return false;
    uint64_t kind = rng_next(&rng) % 3;
    bool heals = kind == 2 || sim.plan.queue.on_exhausted == ON_EXHAUSTED_PARK;
    if (heals && sim_is_calm())
        return false;
    if (kind == 0)
        is_not_taken(flight, VERDICT_REJECTED, ERROR_REFUSED, sim_draw(100, 2 * MS_US));
    else if (kind == 1)
        is_not_taken(flight, VERDICT_RETRY, ERROR_REFUSED, sim_draw(100, 2 * MS_US));
    else
        is_not_taken(flight, VERDICT_UNKNOWN, sim_chance(500) ? ERROR_UNREACHABLE : ERROR_TIMEOUT,
                     sim_draw(100, 100 * MS_US));
    return true;
}

static bool fails_somehow(struct flight *flight)
{
    const struct plan_rates *rates = &sim.plan.rates;
    int64_t soon = sim_draw(100, 5 * MS_US);
    if (rates->no_route && !sim_is_calm() && flight->key % 3 == 0)
        is_not_taken(flight, VERDICT_RETRY, ERROR_ROUTE, soon);
    else if (sim_fails(rates->refused))
        is_not_taken(flight, VERDICT_RETRY, sim_chance(500) ? ERROR_REFUSED : ERROR_RESOURCE, soon);
    else if (sim_fails(rates->rejected))
        is_not_taken(flight, VERDICT_REJECTED, ERROR_REFUSED, soon);
    else if (sim_fails(rates->unreachable))
        is_not_taken(flight, VERDICT_RETRY, ERROR_UNREACHABLE, soon);
    else if (sim_fails(rates->overloaded))
        is_not_taken(flight, VERDICT_RETRY, sim_chance(500) ? ERROR_OVERLOADED : ERROR_TIMEOUT, soon);
    else if (sim_fails(rates->unknown))
        is_unknown(flight);
    else
        return false;
    flight->retry_after_us = flight->kind == ERROR_OVERLOADED && sim_chance(500) ? sim_draw(1, 300 * MS_US) : 0;
    return true;
}

static void decide(struct flight *flight)
{
    bool away = sim.now < network.away_until;
    if (away && network.hangs)
        is_not_taken(flight, VERDICT_UNKNOWN, ERROR_TIMEOUT, sim_draw(50, 300) * MS_US);
    else if (away)
        is_not_taken(flight, VERDICT_RETRY, ERROR_UNREACHABLE, sim_draw(100, 2 * MS_US));
    else if (sim.plan.slow_key >= 0 && flight->key == sim.plan.slow_key && network.slow_left-- > 0)
        is_taken(flight, sim_draw(2000, 4000) * MS_US);
    else if (!is_poison(flight) && !fails_somehow(flight))
        is_taken(flight, sim_fails(sim.plan.rates.late) ? sim_draw(20, 800) * MS_US : sim_draw(100, 3 * MS_US));
}

/* The delivery of the same key before this one, when the sink keeps the order of the two and it is still under way. */
static const struct flight *flight_before(const struct flight *of)
{
    bool ordered = sim.plan.keeps_order || (of->sink->sink.traits & SINK_TAKES_RUNS && of->d->joined);
    if (!ordered || of->key == KEY_NONE_SIM)
        return NULL;
    const struct flight *last = NULL;
    for (size_t i = 0; i < network.count; i++) {
        const struct flight *flight = &network.flights[i];
        if (flight->d && flight->sink == of->sink && flight->key == of->key && (!last || flight->id > last->id))
            last = flight;
    }
    return last;
}

static void follow(struct flight *flight, const struct flight *before)
{
    flight->follows = true;
    if (before->verdict != VERDICT_ACKED) {
        flight->arrives_at = INSTANT_NEVER;
        is_not_taken(flight, sim_chance(500) ? VERDICT_RETRY : VERDICT_UNKNOWN, before->kind, 0);
        flight->verdict_at = before->verdict_at + sim_draw(0, 100);
        return;
    }
    decide(flight);
    instant_us not_before = before->arrives_at == INSTANT_NEVER ? sim.now : before->arrives_at;
    if (flight->arrives_at <= not_before) {
        flight->arrives_at = not_before + 1;
        flight->verdict_at = not_before + sim_draw(50, 2 * MS_US);
    }
}

/* ---- the contract ---- */

static struct sink *sink_open_one(const char *name, const void *settings, struct error *err)
{
    (void)name;
    (void)settings;
    (void)err;
    struct sim_sink *sink = memory_new(sizeof *sink);
    sink->process = sim.current;
    sink->sink.traits = sim.plan.keeps_order ? SINK_KEEPS_KEY_ORDER : sim.plan.takes_runs ? SINK_TAKES_RUNS : 0;
    return &sink->sink;
}

static size_t sink_take(struct sink *base, struct delivery *const ds[], size_t n, instant_us now)
{
    struct sim_sink *sink = (struct sim_sink *)base;
    /* Full only while something is in flight: the next verdict is what makes room. */
    size_t taken = sim_fails(sim.plan.rates.full) ? (size_t)sim_draw(base->in_flight == 0, (int64_t)n) : n;
    for (size_t i = 0; i < taken; i++) {
        assert(network.count < FLIGHTS_MAX);
        const struct event *event = ds[i]->event;
        struct flight flight = {.d = ds[i],
                                .sink = sink,
                                .process = sink->process,
                                .key = event->key.data ? atoi(event->key.data + 1) : KEY_NONE_SIM,
                                .id = event->id,
                                .arrives_at = INSTANT_NEVER,
                                .verdict_at = now};
        const struct flight *before = flight_before(&flight);
        if (before)
            follow(&flight, before);
        else
            decide(&flight);
        network.flights[network.count++] = flight;
        judge_submitted(sink->process, event->id, event->attempt, ds[i]->joined);
    }
    return taken;
}

static void sink_wait_for(struct sink *base, struct pollset *ps)
{
    for (size_t i = 0; i < network.count; i++)
        if (network.flights[i].d && &network.flights[i].sink->sink == base)
            pollset_deadline(ps, network.flights[i].verdict_at);
}

static void resolve(struct flight *flight)
{
    struct delivery *d = flight->d;
    flight->d = NULL;
    judge_verdict(flight->process, flight->id, flight->verdict, flight->kind);
    d->retry_after_us = flight->retry_after_us;
    if (flight->verdict == VERDICT_ACKED)
        delivery_resolve(d, VERDICT_ACKED, NULL);
    else
        delivery_fail(d, flight->verdict, flight->kind, "as the seed wants it");
}

/* The earliest verdict first. */
static void sink_go_on(struct sink *base, const struct pollset *ps, instant_us now)
{
    (void)ps;
    for (;;) {
        struct flight *next = NULL;
        for (size_t i = 0; i < network.count; i++) {
            struct flight *flight = &network.flights[i];
            if (flight->d && &flight->sink->sink == base && flight->verdict_at <= now &&
                (!next || flight->verdict_at < next->verdict_at))
                next = flight;
        }
        if (!next)
            return;
        resolve(next);
        forget_if_over(next);
    }
}

/* What follows `first` does not arrive either, though its verdict may have been given. */
static void stop_behind(const struct flight *first)
{
    const struct sim_sink *sink = first->sink;
    int key = first->key;
    int64_t id = first->id;
    for (size_t i = network.count; i-- > 0;) {
        struct flight *flight = &network.flights[i];
        if (!flight->follows || flight->sink != sink || flight->key != key || flight->id <= id)
            continue;
        flight->arrives_at = INSTANT_NEVER;
        if (flight->verdict == VERDICT_ACKED)
            is_not_taken(flight, VERDICT_UNKNOWN, ERROR_LOST_CLAIM, 0);
        forget_if_over(flight);
    }
}

/* Nothing more of the delivery arrives. */
static void sink_call_back(struct sink *base, struct delivery *d)
{
    for (size_t i = 0; sim.plan.calls_back && i < network.count; i++) {
        struct flight *flight = &network.flights[i];
        if (flight->d != d || &flight->sink->sink != base)
            continue;
        bool arrived = flight->verdict == VERDICT_ACKED && flight->arrives_at == INSTANT_NEVER;
        if (!arrived)
            is_not_taken(flight, VERDICT_UNKNOWN, ERROR_LOST_CLAIM, 0);
        flight->arrives_at = INSTANT_NEVER;
        if (!arrived)
            stop_behind(flight);
        return;
    }
}

static void sink_end(struct sink *base)
{
    for (size_t i = network.count; i-- > 0;) {
        struct flight *flight = &network.flights[i];
        if (!flight->d || &flight->sink->sink != base)
            continue;
        flight->verdict = VERDICT_UNKNOWN;
        flight->kind = ERROR_UNREACHABLE;
        resolve(flight);
        forget_if_over(flight);
    }
    free(base);
}

static enum reach sink_ask(struct sink *base, struct span destination, instant_us now, struct error *err)
{
    (void)destination;
    struct sim_sink *sink = (struct sim_sink *)base;
    sink->asked = !sink->asked;
    if (sink->asked)
        return REACH_PENDING;
    if (now >= network.away_until)
        return REACH_YES;
    error_set(err, ERROR_UNREACHABLE, "the network is away");
    return REACH_NO;
}

const struct sink_type sim_sink = {.name = "sim",
                                   .run = {.events_min = 8, .events_max = 64, .bytes_max = (size_t)256 * 1024},
                                   .open = sink_open_one,
                                   .submit = sink_take,
                                   .prepare = sink_wait_for,
                                   .progress = sink_go_on,
                                   .close = sink_end,
                                   .cancel = sink_call_back};

const struct sink_type sim_sink_probing = {.name = "probing",
                                           .run = {.events_min = 8, .events_max = 64, .bytes_max = (size_t)256 * 1024},
                                           .open = sink_open_one,
                                           .submit = sink_take,
                                           .prepare = sink_wait_for,
                                           .progress = sink_go_on,
                                           .close = sink_end,
                                           .cancel = sink_call_back,
                                           .probe = sink_ask};

const struct sink_type *const sink_types[] = {&sim_sink, &sim_sink_probing, NULL};
