/* How much of each lane goes at once. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/fake_sink.h"

static void set_up_runs(void)
{
    set_up();
    fake->sink.traits = SINK_TAKES_RUNS;
}

static void stage_many(int64_t from, int64_t to, const char *key)
{
    for (int64_t id = from; id <= to; id++)
        stage_event(batch, id, key);
}

/* ids from..to were submitted as one run, from place `at` on. */
static void assert_run(size_t at, int64_t from, int64_t to)
{
    for (int64_t id = from; id <= to; id++, at++) {
        ck_assert_uint_lt(at, fake->taken_count);
        ck_assert_int_eq(fake->taken[at]->event->id, id);
        ck_assert_msg(fake->taken[at]->joined == (id > from), "event %d", (int)id);
    }
    ck_assert(at == fake->taken_count || !fake->taken[at]->joined);
}

START_TEST(few_keys_go_in_runs)
{
    stage_many(1, 10, "a");
    stage_many(11, 12, "b");
    turn();
    assert_run(0, 1, 8);
    assert_run(8, 11, 12);
    ck_assert_uint_eq(fake->sent_count, 10);
}
END_TEST

START_TEST(many_keys_go_one_event_at_a_time)
{
    stage_many(1, 4, "a");
    stage_many(5, 8, "b");
    stage_many(9, 12, "c");
    turn();
    assert_sent(1, 5, 9);
}
END_TEST

START_TEST(next_run_waits_for_all_verdicts)
{
    stage_many(1, 20, "a");
    turn();
    assert_run(0, 1, 16);
    for (int64_t id = 1; id <= 15; id++)
        ack(id);
    turn();
    turn();
    ck_assert_uint_eq(fake->sent_count, 16);
    ack(16);
    turn();
    turn();
    assert_run(0, 17, 20);
}
END_TEST

START_TEST(failure_ends_the_lane_where_it_happened)
{
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    stage_many(2, 4, "a");
    turn();
    ack(1);
    fails(2, VERDICT_RETRY, ERROR_REFUSED);
    fails(3, VERDICT_RETRY, ERROR_REFUSED);
    fails(4, VERDICT_RETRY, ERROR_REFUSED);
    turn();
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_uint_eq(lane->acked, 1);
    ck_assert_int_eq(lane->failed->event.id, 2);
    ck_assert_uint_eq(fake->sent_count, 4);
}
END_TEST

START_TEST(what_a_full_sink_left_of_a_run_waits_for_the_rest_of_it)
{
    fake->room = 3;
    stage_many(1, 6, "a");
    turn();
    turn();
    assert_run(0, 1, 3);
    ack(1);
    ack(2);
    turn();
    ck_assert_uint_eq(fake->sent_count, 3);
    ack(3);
    turn();
    turn();
    assert_run(0, 4, 6);
}
END_TEST

START_TEST(run_is_no_longer_than_agreed)
{
    sink_config.max_in_flight = 1000;
    stage_many(1, RUN_EVENTS_MAX, "a");
    stage_many(RUN_EVENTS_MAX + 1, RUN_EVENTS_MAX + 2, "a");
    turn();
    assert_run(0, 1, RUN_EVENTS_MAX);
    ck_assert_uint_eq(fake->sent_count, RUN_EVENTS_MAX);
}
END_TEST

START_TEST(run_is_no_larger_than_agreed)
{
    for (int64_t id = 1; id <= 3; id++)
        stage_event(batch, id, "a")->event.payload.size = RUN_BYTES_MAX / 2;
    turn();
    assert_run(0, 1, 2);
    ck_assert_uint_eq(fake->sent_count, 2);
}
END_TEST

static void set_up_types(void)
{
    set_up_to("{type}");
    fake->sink.traits = SINK_TAKES_RUNS;
}

START_TEST(another_destination_ends_a_run)
{
    for (int64_t id = 1; id <= 4; id++)
        stage_event(batch, id, "a")->event.type = id <= 2 ? SPAN_LITERAL("one") : SPAN_LITERAL("two");
    turn();
    assert_run(0, 1, 2);
    ck_assert_uint_eq(fake->sent_count, 2);
}
END_TEST

START_TEST(event_that_has_failed_before_goes_alone)
{
    stage_event(batch, 1, "a")->event.attempt = 2;
    stage_many(2, 4, "a");
    turn();
    assert_sent(1);
    ack(1);
    turn();
    turn();
    assert_run(0, 2, 4);
}
END_TEST

START_TEST(bystander_is_given_back_at_once_and_blames_nobody)
{
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    stage_many(2, 3, "a");
    turn();
    fails(2, VERDICT_RETRY, ERROR_BYSTANDER); /* before the one that it fell with has its verdict */
    fails(3, VERDICT_UNKNOWN, ERROR_BYSTANDER);
    turn();
    ck_assert_int_eq(lane->state, LANE_STOPPED);
    ack(1);
    turn();
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_int_eq(lane->outcome, LANE_RELEASED);
    ck_assert_int_eq(lane->release_us, 0);
    ck_assert_uint_eq(lane->acked, 1);
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_CLOSED);
}
END_TEST

START_TEST(event_at_fault_counts_although_a_bystander_was_told_before)
{
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    stage_many(2, 3, "a");
    turn();
    fails(2, VERDICT_RETRY, ERROR_BYSTANDER);
    turn();
    fails(1, VERDICT_REJECTED, ERROR_REFUSED);
    fails(3, VERDICT_RETRY, ERROR_BYSTANDER);
    turn();
    ck_assert_int_eq(lane->failed->event.id, 1);
    ck_assert_int_eq(lane->outcome, LANE_DEAD);
}
END_TEST

START_TEST(trial_goes_alone)
{
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    stage_many(2, 4, "a");
    outlet->circuit.state = CIRCUIT_HALF_OPEN;
    turn();
    assert_sent(1);
    ck_assert_int_eq(lane->state, LANE_OPEN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ready");
    TCase *tcase = tcase_create("runs");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up_runs, tear_down);
    tcase_add_test(tcase, few_keys_go_in_runs);
    tcase_add_test(tcase, many_keys_go_one_event_at_a_time);
    tcase_add_test(tcase, next_run_waits_for_all_verdicts);
    tcase_add_test(tcase, failure_ends_the_lane_where_it_happened);
    tcase_add_test(tcase, what_a_full_sink_left_of_a_run_waits_for_the_rest_of_it);
    tcase_add_test(tcase, run_is_no_longer_than_agreed);
    tcase_add_test(tcase, run_is_no_larger_than_agreed);
    tcase_add_test(tcase, event_that_has_failed_before_goes_alone);
    tcase_add_test(tcase, bystander_is_given_back_at_once_and_blames_nobody);
    tcase_add_test(tcase, event_at_fault_counts_although_a_bystander_was_told_before);
    tcase_add_test(tcase, trial_goes_alone);
    TCase *types = tcase_create("destinations");
    suite_add_tcase(suite, types);
    tcase_add_checked_fixture(types, set_up_types, tear_down);
    tcase_add_test(types, another_destination_ends_a_run);
    return run_suite(suite);
}
