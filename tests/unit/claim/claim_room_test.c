/* How many keys or events a claim asks for, by the room that its sink has. */
#include "relay/claim/claim.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/claim_stage.h"

static struct ordering_type keyless;

static void set_up_keyless(void)
{
    set_up();
    keyless = one;
    keyless.keyless = true;
    stage.noting.ordering.type = &keyless;
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

static struct claim two[2];

/* Another connection beside that which claims, and a sink that takes few events a second. */
static void set_up_two(void)
{
    set_up();
    two[0] = *claim;
    two[1] = (struct claim){.queue = &stage.queue, .index = 1, .state = CLAIM_BUSY, .sent_at = NOW};
    stage_claims(&stage, two, 2);
    claim = &two[0];
    stage.queue.ahead.slow = true;
}

static void tear_down_two(void)
{
    stage_free_batches(&two[1].batches);
    tear_down();
}

static const struct {
    bool claiming; /* or it only settles */
    instant_us since_us;
    bool waits;
} beside[] = {{true, 0, true}, {false, 0, false}, {true, SECOND_US, false}};

START_TEST(claims_for_a_slow_sink_take_turns_but_for_one_that_hangs)
{
    two[1].round.claim = beside[_i].claiming;
    ck_assert_int_eq(asks_for(0, NOW + beside[_i].since_us) == 0, beside[_i].waits);
}
END_TEST

START_TEST(keys_that_any_connection_has_open_take_their_room)
{
    sink.keys_max = 4; /* places */
    two[1].batches = stage_batch(&stage);
    stage.claim.batches = NULL;
    for (int64_t id = 1; id <= 3; id++)
        stage_event(two[1].batches, id, NULL);
    ck_assert_int_eq(asks_for(0, NOW), 1);
    sink.keys_max = 0;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("claim_room");
    TCase *tcase = tcase_create("claim_room");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up_keyless, tear_down);
    tcase_add_test(tcase, claim_asks_for_as_many_as_there_is_room_for);
    tcase_add_test(tcase, claim_asks_for_no_more_than_it_may);
    tcase_add_test(tcase, nothing_is_claimed_where_there_is_no_room);
    tcase_add_test(tcase, what_has_arrived_and_is_not_offered_yet_takes_its_room);
    tcase_add_test(tcase, sink_that_wants_little_has_not_little_room);
    tcase_add_test(tcase, little_room_is_waited_for_to_become_more_but_not_for_long);
    TCase *slow = tcase_create("slow sink");
    suite_add_tcase(suite, slow);
    tcase_add_checked_fixture(slow, set_up_two, tear_down_two);
    tcase_add_loop_test(slow, claims_for_a_slow_sink_take_turns_but_for_one_that_hangs, 0,
                        (int)(sizeof beside / sizeof beside[0]));
    tcase_add_test(slow, keys_that_any_connection_has_open_take_their_room);
    return run_suite(suite);
}
