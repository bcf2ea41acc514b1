/* Destinations that are down, and how the engine finds out that they are back. */
#include "relay/deliver/route_circuit.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/fake_sink.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

START_TEST(unreachable_destination_opens_the_circuit_and_costs_no_attempt)
{
    struct lane *first = stage_event(batch, 1, "a")->lane, *other = stage_event(batch, 2, "b")->lane;
    stage_event(batch, 3, "b");
    turn();
    fails(1, VERDICT_RETRY, ERROR_UNREACHABLE);
    ck_assert_int_eq(outlet_keys_wanted(outlet, route_static(stage.queue.route), now), INT64_MAX);
    fake->sink.keys_max = 8; /* what is claimed beyond that only waits */
    ck_assert_int_eq(outlet_keys_wanted(outlet, route_static(stage.queue.route), now), 8);
    turn();
    ck_assert_int_eq(first->outcome, LANE_RELEASED);
    ck_assert_int_eq(outlet_keys_wanted(outlet, route_static(stage.queue.route), now), 0);
    /* What another lane has in flight still gets its verdict; nothing follows it. */
    fails(2, VERDICT_UNKNOWN, ERROR_UNREACHABLE);
    turn();
    ck_assert_int_eq(other->outcome, LANE_RELEASED);
    assert_sent(1, 2);
}
END_TEST

static void open_circuit(void)
{
    stage_event(batch, 1, "a");
    turn();
    fails(1, VERDICT_RETRY, ERROR_UNREACHABLE);
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_OPEN);
    ck_assert_int_eq(outlet_wake_at(outlet), outlet->circuit.retry_at);
}

START_TEST(open_circuit_probes_and_tries_one_event_before_all_others)
{
    open_circuit();
    now = outlet->circuit.retry_at;
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_PROBING);
    ck_assert_int_eq(outlet_keys_wanted(outlet, route_static(stage.queue.route), now), 0);
    fake->reach = REACH_YES;
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_HALF_OPEN);
    ck_assert_int_eq(outlet_keys_wanted(outlet, route_static(stage.queue.route), now), 1);
    struct batch *next = stage_batch(&stage);
    stage_event(next, 5, "b");
    stage_event(next, 6, "c");
    turn();
    turn();
    assert_sent(1, 5);
    ck_assert_int_eq(outlet_keys_wanted(outlet, route_static(stage.queue.route), now), 0);
    ack(5);
    turn();
    assert_sent(1, 5, 6);
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_CLOSED);
}
END_TEST

START_TEST(failed_probe_and_failed_trial_open_the_circuit_again)
{
    open_circuit();
    fake->reach = REACH_NO;
    now = outlet->circuit.retry_at;
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_OPEN);
    ck_assert_int_gt(outlet->circuit.retry_at, now);
    fake->reach = REACH_YES;
    now = outlet->circuit.retry_at;
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_HALF_OPEN);
    struct batch *next = stage_batch(&stage);
    struct lane *trial = stage_event(next, 5, "b")->lane, *waiting = stage_event(next, 6, "c")->lane;
    turn();
    fails(5, VERDICT_RETRY, ERROR_UNREACHABLE);
    turn();
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_OPEN);
    ck_assert_int_eq(trial->outcome, LANE_RELEASED);
    ck_assert_int_eq(waiting->state, LANE_FINISHED);
    ck_assert_int_eq(waiting->outcome, LANE_RELEASED);
}
END_TEST

/* ---- what the log says of it ---- */

static int log_ends[2];

static void log_to_pipe(void)
{
    ck_assert_int_eq(pipe2(log_ends, O_NONBLOCK), 0);
    stage.log = (struct log){.level = LOG_INFO, .format = LOG_LOGFMT, .fd = log_ends[1]};
}

static const char *logged_since(void)
{
    static char text[4096];
    ssize_t n = read(log_ends[0], text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* What was logged since the last call is one line with both parts, */
static void logged(const char *fact, const char *cause)
{
    const char *text = logged_since(), *end = strchr(text, '\n');
    ck_assert_msg(strstr(text, fact) && strstr(text, cause) && end && end[1] == '\0', "%s", text);
}

/* or nothing. */
static void logged_nothing(void)
{
    ck_assert_str_eq(logged_since(), "");
}

/* The sink is asked, and says so. */
static void probe_finds(enum reach reach, const char *why)
{
    fake->reach = reach;
    fake->unreached = why;
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_OPEN);
    now = now > outlet->circuit.retry_at ? now : outlet->circuit.retry_at;
    turn();
}

static void trial_fails(int64_t id, enum error_kind kind, const char *cause)
{
    stage_event(stage_batch(&stage), id, "b");
    turn();
    fake->cause = cause;
    fails(id, VERDICT_RETRY, kind);
    turn();
}

START_TEST(each_cause_for_which_a_sink_is_down_is_logged_once)
{
    log_to_pipe();
    fake->cause = "connection refused";
    open_circuit();
    logged("msg=sink.down ", "cause=\"connection refused\"");
    probe_finds(REACH_NO, "connection refused");
    logged_nothing();
    now += 30 * SECOND_US;
    probe_finds(REACH_NO, "connection refused");
    logged_nothing();
    probe_finds(REACH_NO, "wrong password");
    logged("level=warn msg=sink.still_down sink=fake destination=\"\" kind=unreachable", "cause=\"wrong password\"");
    probe_finds(REACH_NO, "a cause that changes 1");
    probe_finds(REACH_NO, "a cause that changes 2");
    logged_nothing(); /* not at once: it may be another one each time */
    now += 30 * SECOND_US;
    probe_finds(REACH_YES, NULL);
    trial_fails(5, ERROR_UNREACHABLE, "bad certificate");
    logged("msg=sink.still_down ", "cause=\"bad certificate\"");
    probe_finds(REACH_YES, NULL);
    trial_fails(6, ERROR_UNREACHABLE, "bad certificate");
    logged_nothing();
    close(log_ends[0]);
    close(log_ends[1]);
}
END_TEST

START_TEST(changed_cause_of_one_destination_is_logged)
{
    log_to_pipe();
    stage_event(batch, 1, "a");
    turn();
    fake->cause = "no such topic";
    fails(1, VERDICT_RETRY, ERROR_ROUTE);
    turn();
    logged("msg=sink.down sink=fake destination=there kind=route", "cause=\"no such topic\"");
    now += 30 * SECOND_US;
    turn();
    trial_fails(5, ERROR_ROUTE, "not authorized");
    logged("msg=sink.still_down sink=fake destination=there kind=route", "cause=\"not authorized\"");
    close(log_ends[0]);
    close(log_ends[1]);
}
END_TEST

/* As a delivery of another queue that shares the sink, or a hanging one, may do for long. */
START_TEST(trial_does_not_wait_for_what_was_sent_before)
{
    struct lane *slow = stage_event(batch, 2, "slow")->lane;
    open_circuit();
    ck_assert(in_flight(2));
    fake->reach = REACH_YES;
    now = outlet->circuit.retry_at;
    turn();
    ck_assert_int_eq(outlet_keys_wanted(outlet, route_static(stage.queue.route), now), 1);
    struct batch *next = stage_batch(&stage);
    stage_event(next, 5, "b");
    stage_event(next, 6, "c");
    turn();
    ck_assert(in_flight(5));
    ck_assert(!in_flight(6));
    ck_assert_int_eq(outlet_keys_wanted(outlet, route_static(stage.queue.route), now), 0);
    /* Its failure is the old one's, not the trial's. */
    fails(2, VERDICT_UNKNOWN, ERROR_TIMEOUT);
    turn();
    ck_assert_int_eq(slow->outcome, LANE_RELEASED);
    ck_assert_int_gt(slow->release_us, 0);
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_HALF_OPEN);
    ck_assert(!in_flight(6));
    ack(5);
    turn();
    ck_assert(in_flight(6));
}
END_TEST

START_TEST(no_key_is_claimed_for_a_trial_that_would_have_to_wait_for_room)
{
    sink_config.max_in_flight = 2;
    stage_event(batch, 2, "slow");
    open_circuit();
    fake->reach = REACH_YES;
    now = outlet->circuit.retry_at;
    turn();
    ck_assert_int_eq(outlet_keys_wanted(outlet, route_static(stage.queue.route), now), 1);
    sink_config.max_in_flight = 1;
    ck_assert_int_eq(outlet_keys_wanted(outlet, route_static(stage.queue.route), now), 0);
}
END_TEST

START_TEST(trial_that_is_refused_for_its_own_fault_makes_way_for_another)
{
    open_circuit();
    fake->reach = REACH_YES;
    now = outlet->circuit.retry_at;
    turn();
    struct batch *next = stage_batch(&stage);
    stage_event(next, 5, "b");
    stage_event(next, 6, "c");
    turn();
    fails(5, VERDICT_REJECTED, ERROR_REFUSED);
    turn();
    ck_assert(in_flight(6));
}
END_TEST

/* ---- destinations that are troubled by themselves; the destination is the event's key ---- */

static void trouble_route_x(void)
{
    tear_down();
    set_up_to("{key}");
    stage_event(batch, 1, "x");
    turn();
    fails(1, VERDICT_RETRY, ERROR_ROUTE);
    turn();
    ck_assert_uint_eq(outlet->routes.count, 1);
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_CLOSED);
}

/* Two lanes of one destination, as two batches make them. */
static struct lane *another_x(int64_t id)
{
    return stage_event(stage_batch(&stage), id, "x")->lane;
}

START_TEST(troubled_route_stops_its_own_events_only)
{
    trouble_route_x();
    struct lane *blocked = another_x(5);
    stage_event(stage_batch(&stage), 6, "y");
    turn();
    assert_sent(1, 6);
    ck_assert_int_eq(blocked->outcome, LANE_RELEASED);
    ck_assert_int_gt(blocked->release_us, 0);
    ack(6);
    turn();
    ck_assert_uint_eq(outlet->routes.count, 1);
}
END_TEST

START_TEST(what_is_claimed_for_a_troubled_route_in_vain_has_a_price)
{
    trouble_route_x();
    struct lane *blocked = another_x(5);
    stage_event(stage_batch(&stage), 6, "y");
    turn();
    ck_assert_int_eq(blocked->outcome, LANE_RELEASED);
    instant_us until = stage.queue.wasted_until;
    ck_assert_int_gt(until, now);
    another_x(7);
    another_x(8);
    turn();
    ck_assert_int_eq(stage.queue.wasted_until - now, 2 * (until - (now - MS_US)));
}
END_TEST

START_TEST(what_a_sink_that_is_down_gives_back_has_no_price)
{
    open_circuit();
    struct lane *blocked = stage_event(stage_batch(&stage), 5, "b")->lane;
    turn();
    ck_assert_int_eq(blocked->outcome, LANE_RELEASED);
    ck_assert_int_eq(stage.queue.wasted_until, 0);
}
END_TEST

START_TEST(lane_that_a_later_event_stopped_ends_when_the_sink_had_no_room)
{
    tear_down();
    set_up_to("{type}");
    stage_event(batch, 1, "z")->event.type = span_of("trial");
    turn();
    fails(1, VERDICT_RETRY, ERROR_ROUTE);
    turn();
    now = outlet->routes.first->circuit.retry_at;
    stage_event(stage_batch(&stage), 2, "y")->event.type = span_of("troubled");
    turn();
    fails(2, VERDICT_RETRY, ERROR_ROUTE);
    turn();
    ck_assert_uint_eq(outlet->routes.count, 2);
    fake->sink.traits = SINK_KEEPS_KEY_ORDER;
    fake->room = 0;
    struct batch *next = stage_batch(&stage);
    struct item *first = stage_event(next, 5, "a"), *second = stage_event(next, 6, "a");
    first->event.type = span_of("trial");
    second->event.type = span_of("troubled");
    turn();
    ck_assert_int_eq(first->lane->outcome, LANE_RELEASED);
    ck_assert_uint_eq(first->lane->in_flight, 0);
    assert_sent(1, 2);
}
END_TEST

START_TEST(troubled_route_is_tried_with_one_event_at_a_time)
{
    trouble_route_x();
    now = outlet->routes.first->circuit.retry_at;
    turn();
    ck_assert_int_eq(outlet->routes.first->circuit.state, CIRCUIT_HALF_OPEN);
    for (int64_t id = 5; id <= 9; id++)
        another_x(id);
    turn();
    ck_assert_uint_eq(fake->sent_count, 2);
    ack(fake->sent[1]);
    turn();
    ck_assert_uint_eq(outlet->routes.count, 0);
    another_x(10);
    turn();
    ck_assert(in_flight(10));
}
END_TEST

START_TEST(trial_that_the_sink_had_no_room_for_is_tried_later)
{
    trouble_route_x();
    now = outlet->routes.first->circuit.retry_at;
    turn();
    fake->room = 0;
    another_x(5);
    turn();
    turn();
    ck_assert(!in_flight(5));
    fake->room = TAKEN_MAX;
    turn();
    turn();
    ck_assert(in_flight(5));
}
END_TEST

START_TEST(trial_of_a_route_is_one_event_also_where_the_sink_keeps_order)
{
    trouble_route_x();
    fake->sink.traits = SINK_KEEPS_KEY_ORDER;
    now = outlet->routes.first->circuit.retry_at;
    turn();
    struct batch *next = stage_batch(&stage);
    stage_event(next, 5, "x");
    stage_event(next, 6, "x");
    turn();
    assert_sent(1, 5);
    ack(5);
    turn();
    ck_assert_uint_eq(outlet->routes.count, 0);
}
END_TEST

/* The rest of its lane is held back meanwhile, which must not hide what becomes of it: it would be tried for ever. */
START_TEST(trial_of_a_route_that_is_refused_counts_where_the_sink_keeps_order)
{
    trouble_route_x();
    fake->sink.traits = SINK_KEEPS_KEY_ORDER;
    now = outlet->routes.first->circuit.retry_at;
    turn();
    struct batch *next = stage_batch(&stage);
    struct lane *lane = stage_event(next, 5, "x")->lane;
    stage_event(next, 6, "x");
    turn();
    ck_assert(in_flight(5) && !in_flight(6));
    fails(5, VERDICT_REJECTED, ERROR_REFUSED);
    turn();
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_int_eq(lane->outcome, LANE_DEAD);
    ck_assert_int_eq(lane->failed->event.id, 5);
}
END_TEST

/* Each to a destination of its own, all of which refuse. */
static void trouble_routes(int64_t first, int64_t count)
{
    for (int64_t id = first; id < first + count; id++) {
        char key[24];
        snprintf(key, sizeof key, "to-%" PRId64, id);
        stage_event(stage_batch(&stage), id, key);
        turn();
        fails(id, VERDICT_RETRY, ERROR_ROUTE);
        turn();
        fake->sent_count = 0;
    }
}

START_TEST(many_troubled_routes_do_not_close_the_sink)
{
    trouble_route_x();
    fake->sent_count = 0;
    trouble_routes(10, ROUTE_CIRCUITS_MAX + 5);
    ck_assert_uint_eq(outlet->routes.count, ROUTE_CIRCUITS_MAX);
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_CLOSED);
    ck_assert_ptr_null(route_circuit_find(&outlet->routes, SPAN_LITERAL("x"))); /* the oldest made way */
    ck_assert_ptr_nonnull(route_circuit_find(&outlet->routes, SPAN_LITERAL("to-1014")));
}
END_TEST

START_TEST(troubled_route_that_nothing_is_sent_to_is_forgotten)
{
    trouble_route_x();
    now += 30 * SECOND_US;
    turn();
    ck_assert_uint_eq(outlet->routes.count, 1);
    now += 60 * SECOND_US;
    turn();
    ck_assert_uint_eq(outlet->routes.count, 0);
}
END_TEST

START_TEST(troubled_route_is_not_forgotten_during_its_trial)
{
    trouble_route_x();
    now += 30 * SECOND_US;
    turn();
    another_x(5);
    turn();
    ck_assert(in_flight(5));
    now += 60 * SECOND_US;
    turn();
    ck_assert_uint_eq(outlet->routes.count, 1);
    another_x(6);
    turn();
    ck_assert(!in_flight(6));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("deliver_circuit");
    TCase *tcase = tcase_create("deliver_circuit");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, unreachable_destination_opens_the_circuit_and_costs_no_attempt);
    tcase_add_test(tcase, open_circuit_probes_and_tries_one_event_before_all_others);
    tcase_add_test(tcase, failed_probe_and_failed_trial_open_the_circuit_again);
    tcase_add_test(tcase, each_cause_for_which_a_sink_is_down_is_logged_once);
    tcase_add_test(tcase, changed_cause_of_one_destination_is_logged);
    tcase_add_test(tcase, trial_does_not_wait_for_what_was_sent_before);
    tcase_add_test(tcase, no_key_is_claimed_for_a_trial_that_would_have_to_wait_for_room);
    tcase_add_test(tcase, trial_that_is_refused_for_its_own_fault_makes_way_for_another);
    tcase_add_test(tcase, troubled_route_stops_its_own_events_only);
    tcase_add_test(tcase, what_is_claimed_for_a_troubled_route_in_vain_has_a_price);
    tcase_add_test(tcase, what_a_sink_that_is_down_gives_back_has_no_price);
    tcase_add_test(tcase, lane_that_a_later_event_stopped_ends_when_the_sink_had_no_room);
    tcase_add_test(tcase, troubled_route_is_tried_with_one_event_at_a_time);
    tcase_add_test(tcase, trial_that_the_sink_had_no_room_for_is_tried_later);
    tcase_add_test(tcase, trial_of_a_route_is_one_event_also_where_the_sink_keeps_order);
    tcase_add_test(tcase, trial_of_a_route_that_is_refused_counts_where_the_sink_keeps_order);
    tcase_add_test(tcase, many_troubled_routes_do_not_close_the_sink);
    tcase_add_test(tcase, troubled_route_that_nothing_is_sent_to_is_forgotten);
    tcase_add_test(tcase, troubled_route_is_not_forgotten_during_its_trial);
    return run_suite(suite);
}
