/* A bench's relay that stands still, comes short or cannot go on, and what is said of a slow server. The relay's loop
 * and the time are played here. */
#include "relay/bench/bench_relay.h"

#include "relay/base/arena.h"
#include "relay/base/pollset.h"
#include "relay/bench/bench_load.h"
#include "relay/bench/bench_result.h"
#include "relay/deliver/outlet.h"
#include "relay/queue/queue.h"
#include "relay/relay.h"
#include "tests/support/run_suite.h"

#include <stdio.h>
#include <unistd.h>

#define EVENTS 10

static struct bench bench;
static struct config config;
static struct sink_config sink;
static struct log quiet = {.level = LOG_ERROR, .fd = -1};
static struct outlet outlet;
static struct queue queue;
static struct route_circuit trouble;
static struct pollset *ps;
static struct error err;
static instant_us clock_us, step_us;
static int turns, poll_fails_at, load_fails_at;
static uint64_t delivered_a_turn, delivered_most;
static bool opens;

struct relay *__wrap_relay_open(const struct relay_options *options, struct error *e);
void __wrap_relay_close(struct relay *relay);
const struct queue *__wrap_relay_queue(const struct relay *relay, size_t index);
struct pollset *__wrap_relay_prepare(struct relay *relay, instant_us now);
void __wrap_relay_turn(struct relay *relay, instant_us now);
bool __wrap_relay_has_ended(struct relay *relay, instant_us now, enum relay_end *ret);
bool __wrap_pollset_wait(struct pollset *set, instant_us now, struct error *e);
instant_us __wrap_clock_now(void);
struct bench_load *__wrap_bench_load_new(struct bench *b);
void __wrap_bench_load_free(struct bench_load *load);
void __wrap_bench_load_prepare(struct bench_load *load, struct pollset *set, instant_us now);
bool __wrap_bench_load_turn(struct bench_load *load, const struct pollset *set, instant_us now, struct error *e);
bool __wrap_bench_load_is_connected(const struct bench_load *load);
bool __wrap_bench_load_is_over(const struct bench_load *load, instant_us now);

struct relay *__wrap_relay_open(const struct relay_options *options, struct error *e)
{
    ck_assert_ptr_eq(options->config, &config);
    if (!opens)
        error_set(e, ERROR_UNREACHABLE, "not there");
    return opens ? (struct relay *)&queue : NULL;
}

void __wrap_relay_close(struct relay *relay)
{
    ck_assert((relay != NULL) == opens);
}

const struct queue *__wrap_relay_queue(const struct relay *relay, size_t index)
{
    (void)relay;
    ck_assert_uint_eq(index, 0);
    return &queue;
}

struct pollset *__wrap_relay_prepare(struct relay *relay, instant_us now)
{
    (void)relay, (void)now;
    pollset_clear(ps);
    return ps;
}

/* Claims in the first turn, delivers in the others, and settles a turn later. */
void __wrap_relay_turn(struct relay *relay, instant_us now)
{
    (void)relay, (void)now;
    struct metrics *m = &queue.metrics;
    m->claims = 1;
    m->settled = m->delivered;
    if (turns++ > 0)
        m->delivered =
            m->delivered + delivered_a_turn < delivered_most ? m->delivered + delivered_a_turn : delivered_most;
}

bool __wrap_relay_has_ended(struct relay *relay, instant_us now, enum relay_end *ret)
{
    (void)relay, (void)now;
    *ret = RELAY_DRAINED;
    return turns > 4;
}

bool __wrap_pollset_wait(struct pollset *set, instant_us now, struct error *e)
{
    (void)set, (void)now;
    return turns + 1 != poll_fails_at || error_set(e, ERROR_RESOURCE, "poll: no");
}

instant_us __wrap_clock_now(void)
{
    return clock_us += step_us;
}

struct bench_load *__wrap_bench_load_new(struct bench *b)
{
    static struct bench_load load;
    load = (struct bench_load){.bench = b};
    return &load;
}

bool __wrap_bench_load_is_over(const struct bench_load *load, instant_us now)
{
    (void)now;
    return load->inserted == 2;
}

void __wrap_bench_load_free(struct bench_load *load)
{
    ck_assert((load != NULL) == opens);
}

void __wrap_bench_load_prepare(struct bench_load *load, struct pollset *set, instant_us now)
{
    (void)load, (void)set, (void)now;
}

bool __wrap_bench_load_turn(struct bench_load *load, const struct pollset *set, instant_us now, struct error *e)
{
    (void)set;
    load->inserted += turns > 1;
    load->ended_at = now;
    return turns != load_fails_at || error_set(e, ERROR_UNREACHABLE, "bench: an insert: gone");
}

bool __wrap_bench_load_is_connected(const struct bench_load *load)
{
    (void)load;
    return true;
}

static void set_up(void)
{
    static char name[] = "web";
    sink = (struct sink_config){.name = name};
    config = (struct config){.sinks = &sink, .sink_count = 1};
    bench = (struct bench){.options = {.events = EVENTS, .rate = 100, .seconds = 1, .connections = 1},
                           .config = &config,
                           .log = &quiet,
                           .signal_fd = -1};
    outlet = (struct outlet){.config = &sink};
    queue = (struct queue){.outlet = &outlet};
    ps = pollset_new();
    clock_us = SECOND_US;
    step_us = MS_US;
    turns = poll_fails_at = load_fails_at = 0;
    delivered_a_turn = 5;
    delivered_most = EVENTS;
    opens = true;
}

static void tear_down(void)
{
    pollset_free(ps);
}

static void assert_fails(bool done, enum error_kind kind, const char *text)
{
    ck_assert(!done);
    ck_assert_int_eq(err.kind, kind);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
}

static bool drain(void)
{
    double per_second;
    return bench_relay_drain(&bench, &per_second, &err);
}

static bool latency(void)
{
    struct bench_latency ret;
    return bench_relay_latency(&bench, &ret, &err);
}

START_TEST(relay_that_does_not_open_is_an_error)
{
    ck_assert(bench_relay_check(&bench, &err));
    opens = false;
    assert_fails(bench_relay_check(&bench, &err), ERROR_UNREACHABLE, "not there");
    assert_fails(drain(), ERROR_UNREACHABLE, "not there");
    assert_fails(latency(), ERROR_UNREACHABLE, "not there");
}
END_TEST

START_TEST(relay_that_stands_still_ends_the_bench)
{
    config.statement_timeout_us = 28 * SECOND_US;
    step_us = 15 * SECOND_US;
    delivered_a_turn = 0;
    assert_fails(drain(), ERROR_TIMEOUT, "nothing was delivered for 30.0 s");
}
END_TEST

START_TEST(relay_that_comes_short_is_a_defect)
{
    delivered_most = 9;
    assert_fails(drain(), ERROR_INTERNAL, "the relay drained 9 of 10 events");
}
END_TEST

START_TEST(drain_goes_from_the_first_claim_to_the_last_settlement)
{
    double per_second;
    ck_assert_msg(bench_relay_drain(&bench, &per_second, &err), "%s", err.text);
    ck_assert_int_eq(turns, 5); /* claim, deliver, deliver and settle, settle, look */
    ck_assert_double_eq_tol(per_second, EVENTS / 0.003, 0.01);
}
END_TEST

START_TEST(wait_that_fails_ends_the_bench)
{
    poll_fails_at = _i;
    assert_fails(drain(), ERROR_RESOURCE, "poll: no");
    turns = 0;
    queue = (struct queue){.outlet = &outlet};
    assert_fails(latency(), ERROR_RESOURCE, "poll: no");
}
END_TEST

START_TEST(load_that_fails_ends_the_bench)
{
    load_fails_at = _i;
    assert_fails(latency(), ERROR_UNREACHABLE, "bench: an insert: gone");
}
END_TEST

START_TEST(destination_that_is_down_ends_the_bench)
{
    outlet.routes.first = &trouble;
    assert_fails(drain(), ERROR_OVERLOADED, "the sink web is down");
}
END_TEST

START_TEST(load_is_delivered_when_all_of_it_is_inserted_too)
{
    delivered_a_turn = 2; /* a turn ahead of the last insert */
    ck_assert_msg(latency(), "%s", err.text);
    ck_assert_int_eq(turns, 3);
}
END_TEST

static const struct {
    double rate;
    bool told;
} rates[] = {{94, true}, {96, false}};

START_TEST(server_that_takes_fewer_inserts_than_asked_for_is_named)
{
    struct bench_result result = {.pairs = {{1, 1}}, .pair_count = 1, .has_latency = true};
    char said[2000] = "";
    int ends[2], own = dup(STDOUT_FILENO);
    result.latency.rate = rates[_i].rate;
    fflush(stdout);
    ck_assert_int_eq(pipe(ends), 0);
    dup2(ends[1], STDOUT_FILENO);
    bench_result_print(&bench, &result);
    fflush(stdout);
    dup2(own, STDOUT_FILENO);
    ck_assert_int_gt(read(ends[0], said, sizeof said - 1), 0);
    close(ends[0]);
    close(ends[1]);
    close(own);
    ck_assert_msg((strstr(said, "fewer inserts than the 100 events/s") != NULL) == rates[_i].told, "%s", said);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bench_relay");
    TCase *tcase = tcase_create("bench_relay");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, relay_that_does_not_open_is_an_error);
    tcase_add_test(tcase, relay_that_stands_still_ends_the_bench);
    tcase_add_test(tcase, relay_that_comes_short_is_a_defect);
    tcase_add_test(tcase, drain_goes_from_the_first_claim_to_the_last_settlement);
    tcase_add_loop_test(tcase, wait_that_fails_ends_the_bench, 1, 3);
    tcase_add_loop_test(tcase, load_that_fails_ends_the_bench, 1, 3);
    tcase_add_test(tcase, destination_that_is_down_ends_the_bench);
    tcase_add_test(tcase, load_is_delivered_when_all_of_it_is_inserted_too);
    tcase_add_loop_test(tcase, server_that_takes_fewer_inserts_than_asked_for_is_named, 0, 2);
    return run_suite(suite);
}
