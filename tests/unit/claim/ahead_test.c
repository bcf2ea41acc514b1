/* How far a queue claims ahead of a sink that is slow. */
#include "relay/claim/ahead.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#define NOW (10 * SECOND_US)
#define PLACES INT64_C(20)

static struct stage stage;
static struct sink sink;
static struct sink_config sink_config;
static struct outlet outlet;
static struct ordering_type type;

static void set_up(void)
{
    stage_init(&stage, "there");
    sink = (struct sink){0};
    sink_config.max_in_flight = PLACES;
    outlet = (struct outlet){.sink = &sink, .config = &sink_config};
    type = noting_type;
    stage.noting.ordering.type = &type;
    stage.queue.outlet = &outlet;
    stage.queue.ahead.measured_at = NOW;
}

static void tear_down(void)
{
    stage_done(&stage);
}

/* It delivers so many events in a second, while so many keys wait for it. */
static instant_us deliver(uint64_t events, size_t keys)
{
    outlet.ready_count = keys;
    stage.queue.metrics.delivered += events;
    instant_us now = stage.queue.ahead.measured_at + SECOND_US;
    ahead_turn(&stage.queue, now);
    return now;
}

static int64_t room_beside(int64_t open)
{
    return ahead_room(&stage.queue, open);
}

START_TEST(slow_sink_that_more_keys_wait_for_than_it_has_places_is_behind)
{
    ck_assert(ahead_is_behind(&stage.queue, deliver(1000, PLACES)));
}
END_TEST

START_TEST(sink_of_which_nothing_is_known_is_slow_and_not_behind)
{
    stage.queue.ahead.measured_at = 0;
    outlet.ready_count = PLACES;
    ahead_turn(&stage.queue, NOW);
    ck_assert_int_eq(room_beside(0), 4 * PLACES);
    ck_assert(!ahead_is_behind(&stage.queue, NOW));
    sink.traits = SINK_TAKES_RUNS;
    stage.queue.ahead.measured_at = 0;
    ahead_turn(&stage.queue, NOW);
    ck_assert_int_eq(room_beside(0), INT64_MAX);
}
END_TEST

START_TEST(few_keys_that_wait_are_not_behind)
{
    ck_assert(!ahead_is_behind(&stage.queue, deliver(1000, PLACES - 1)));
}
END_TEST

START_TEST(fast_sink_is_never_behind)
{
    ck_assert(!ahead_is_behind(&stage.queue, deliver(20000, 1000)));
    ck_assert_int_eq(room_beside(0), INT64_MAX);
}
END_TEST

START_TEST(sink_that_takes_several_events_of_a_key_is_never_behind)
{
    sink.traits = SINK_TAKES_RUNS;
    ck_assert(!ahead_is_behind(&stage.queue, deliver(10, 1000)));
}
END_TEST

START_TEST(where_no_event_waits_for_another_nothing_is_behind)
{
    type.keyless = true;
    ck_assert(!ahead_is_behind(&stage.queue, deliver(10, 1000)));
}
END_TEST

/* It comes and goes with each claim. */
START_TEST(moment_with_few_keys_ends_it_only_when_it_lasts)
{
    instant_us now = deliver(1000, PLACES);
    outlet.ready_count = 0;
    ahead_turn(&stage.queue, now + 50 * MS_US);
    ck_assert(ahead_is_behind(&stage.queue, now + 50 * MS_US));
    ahead_turn(&stage.queue, now + SECOND_US);
    ck_assert(!ahead_is_behind(&stage.queue, now + SECOND_US));
}
END_TEST

START_TEST(sink_that_turns_out_to_be_fast_is_not_behind_any_more)
{
    deliver(1000, PLACES);
    ck_assert(!ahead_is_behind(&stage.queue, deliver(5000, PLACES)));
}
END_TEST

START_TEST(room_for_a_slow_sink_is_a_few_times_its_places)
{
    deliver(1000, 0);
    ck_assert_int_eq(room_beside(0), 4 * PLACES);
    ck_assert_int_eq(room_beside(PLACES), 3 * PLACES);
    ck_assert_int_eq(room_beside(3 * PLACES), PLACES);
    ck_assert_int_eq(room_beside(3 * PLACES + 1), 0); /* little */
}
END_TEST

START_TEST(sink_with_one_place_has_claims_worth_their_round_trip)
{
    sink_config.max_in_flight = 1;
    deliver(1000, 0);
    ck_assert_int_ge(room_beside(0), 64);
}
END_TEST

START_TEST(sink_with_few_places_for_long_deliveries_gets_as_many_as_it_has)
{
    sink.keys_max = 4;
    sink.traits = SINK_TAKES_RUNS; /* it need not be slow */
    deliver(8, 0);
    ck_assert_int_eq(ahead_places(&stage.queue), 4);
    ck_assert_int_eq(room_beside(0), 4);
    ck_assert_int_eq(room_beside(3), 1);
    ck_assert_int_eq(room_beside(4), 0);
}
END_TEST

START_TEST(sink_with_few_places_gets_a_few_more_while_deliveries_are_brief)
{
    sink.keys_max = 4;
    deliver(79, 0);
    ck_assert_int_eq(ahead_places(&stage.queue), 4);
    deliver(80, 0);
    ck_assert_int_eq(ahead_places(&stage.queue), 16);
    sink.keys_max = 0;
    ck_assert_int_eq(ahead_places(&stage.queue), INT64_MAX);
}
END_TEST

START_TEST(claims_for_a_slow_sink_take_turns)
{
    deliver(1000, 0);
    ck_assert(ahead_takes_turns(&stage.queue));
    deliver(20000, 0);
    ck_assert(!ahead_takes_turns(&stage.queue));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ahead");
    TCase *tcase = tcase_create("ahead");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, slow_sink_that_more_keys_wait_for_than_it_has_places_is_behind);
    tcase_add_test(tcase, sink_of_which_nothing_is_known_is_slow_and_not_behind);
    tcase_add_test(tcase, few_keys_that_wait_are_not_behind);
    tcase_add_test(tcase, fast_sink_is_never_behind);
    tcase_add_test(tcase, sink_that_takes_several_events_of_a_key_is_never_behind);
    tcase_add_test(tcase, where_no_event_waits_for_another_nothing_is_behind);
    tcase_add_test(tcase, moment_with_few_keys_ends_it_only_when_it_lasts);
    tcase_add_test(tcase, sink_that_turns_out_to_be_fast_is_not_behind_any_more);
    tcase_add_test(tcase, room_for_a_slow_sink_is_a_few_times_its_places);
    tcase_add_test(tcase, sink_with_one_place_has_claims_worth_their_round_trip);
    tcase_add_test(tcase, sink_with_few_places_for_long_deliveries_gets_as_many_as_it_has);
    tcase_add_test(tcase, sink_with_few_places_gets_a_few_more_while_deliveries_are_brief);
    tcase_add_test(tcase, claims_for_a_slow_sink_take_turns);
    return run_suite(suite);
}
