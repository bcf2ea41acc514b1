/* How many events a claim asks for where none waits for another. */
#include "relay/claim.h"

#include "tests/support/run_suite.h"
#include "tests/unit/claim_stage.h"

static struct ordering_type solo;

static void set_up_solo(void)
{
    set_up();
    solo = one;
    solo.solo = true;
    stage.noting.ordering.type = &solo;
}

static int64_t asks_for(size_t in_flight, instant_us now)
{
    sink.in_flight = in_flight;
    claim->round.keys = 0;
    claim_ready(&stage.queue, NULL, now);
    return claim->round.keys;
}

START_TEST(claim_asks_for_as_many_as_there_is_room_for)
{
    sink_config.max_in_flight = KEYS + 1;
    ck_assert_int_eq(asks_for(KEYS - 1, NOW), 2);
}
END_TEST

START_TEST(claim_asks_for_no_more_than_it_may)
{
    ck_assert_int_eq(asks_for(0, NOW), KEYS);
}
END_TEST

START_TEST(nothing_is_claimed_where_there_is_no_room)
{
    ck_assert_int_eq(asks_for(100, NOW), 0);
    ck_assert_int_eq(asks_for(101, NOW), 0);
}
END_TEST

START_TEST(what_has_arrived_and_is_not_offered_yet_takes_its_room)
{
    struct batch arrived = {.event_count = 2};
    stage.queue.arrived = &arrived;
    sink_config.max_in_flight = KEYS + 1;
    ck_assert_int_eq(asks_for(0, NOW), KEYS - 1);
    stage.queue.arrived = NULL;
}
END_TEST

/* Of what the sink takes as things are, not of what it may. */
START_TEST(sink_that_wants_little_has_not_little_room)
{
    sink_config.max_in_flight = 100;
    sink.in_flight_max = 8;
    claim->sent_at = NOW - MS_US;
    ck_assert_int_eq(asks_for(5, NOW), 3);
    sink.in_flight_max = 0;
}
END_TEST

START_TEST(little_room_is_waited_for_to_become_more_but_not_for_long)
{
    claim->sent_at = NOW - MS_US;
    ck_assert_int_eq(asks_for(99, NOW), 0);
    ck_assert_int_eq(asks_for(99, NOW + 10 * MS_US), 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("claim_room");
    TCase *tcase = tcase_create("claim_room");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up_solo, tear_down);
    tcase_add_test(tcase, claim_asks_for_as_many_as_there_is_room_for);
    tcase_add_test(tcase, claim_asks_for_no_more_than_it_may);
    tcase_add_test(tcase, nothing_is_claimed_where_there_is_no_room);
    tcase_add_test(tcase, what_has_arrived_and_is_not_offered_yet_takes_its_room);
    tcase_add_test(tcase, sink_that_wants_little_has_not_little_room);
    tcase_add_test(tcase, little_room_is_waited_for_to_become_more_but_not_for_long);
    return run_suite(suite);
}
