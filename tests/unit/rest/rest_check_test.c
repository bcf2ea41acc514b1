/* Whether a queue that rests would still be woken, and how soon it rests again. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/rest_stage.h"

/* The question whether it still may. */
static void check_at(instant_us now)
{
    unsigned number = queue->side_requests.rest_number;
    rest_step(queue, now - 1);
    ck_assert_uint_eq(queue->side_requests.rest_number, number);
    rest_step(queue, now);
    ck_assert_uint_eq(queue->side_requests.rest_number, number + 1);
    ck_assert_int_eq(queue->side_requests.rest, REST_ASKS_WRITERS);
    rest_hear(queue, now);
    ck_assert_int_eq(rest->state, REST_RESTING);
    queue->side_requests.rest = REST_ASKS_NOTHING; /* it is sent */
}

START_TEST(queue_that_rests_asks_once_a_minute_whether_it_still_may)
{
    fall_asleep();
    for (int minute = 1; minute <= 3; minute++) {
        check_at(IDLE_AT + minute * MINUTE_US);
        may_rest(IDLE_AT + minute * MINUTE_US);
        ck_assert_int_eq(rest->state, REST_RESTING);
    }
    stage.config.poll_max_us = 5 * MINUTE_US; /* fewer statements are wanted */
    check_at(IDLE_AT + 4 * MINUTE_US);
    may_rest(IDLE_AT + 4 * MINUTE_US);
    check_at(IDLE_AT + 9 * MINUTE_US);
}
END_TEST

static const struct rest_answer changes[] = {
    {.may = false, .held = true, .obstacle = "another table has this name by now"},
    {.may = true, .held = false},
    {.may = true, .held = true, .family = 7},
    {.failed = true},
};

START_TEST(queue_that_nobody_would_wake_any_more_wakes_by_itself)
{
    fall_asleep();
    check_at(IDLE_AT + MINUTE_US);
    answer(changes[_i], IDLE_AT + MINUTE_US);
    ck_assert_int_eq(rest->state, REST_AWAKE);
    ck_assert_int_eq(queue->pace.poll_at, IDLE_AT + MINUTE_US);
    ck_assert_int_eq(rest->may_until, 0); /* whether it may is asked before it rests again */
}
END_TEST

START_TEST(claim_that_took_all_of_what_was_announced_is_followed_by_a_look)
{
    fall_asleep();
    queue->pace.finds = 0;
    rest_notified(queue, true, IDLE_AT + 2 * SECOND_US);
    ck_assert_int_eq(rest->state, REST_ROUSED);
    queue->pace.found = true;
    queue->pace.took_all = _i == 1;
    queue->pace.poll_at = IDLE_AT + 2 * SECOND_US + 7 * MS_US;
    rest_step(queue, IDLE_AT + 2 * SECOND_US + MS_US);
    ck_assert_int_eq(rest->state, _i == 1 ? REST_LOOKING : REST_ROUSED);
}
END_TEST

START_TEST(claim_connection_that_has_failed_once_and_is_not_needed_keeps_no_queue_awake)
{
    stage.claim.failures = 1;
    stage.claim.retry_at = IDLE_AT + 1;
    rest_step(queue, IDLE_AT);
    is_awake(false);
    rest_step(queue, IDLE_AT + 1);
    ck_assert_int_eq(rest->state, REST_ASKING);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rest_check");
    TCase *tcase = tcase_create("rest_check");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, queue_that_rests_asks_once_a_minute_whether_it_still_may);
    tcase_add_loop_test(tcase, queue_that_nobody_would_wake_any_more_wakes_by_itself, 0,
                        sizeof changes / sizeof *changes);
    tcase_add_loop_test(tcase, claim_that_took_all_of_what_was_announced_is_followed_by_a_look, 0, 2);
    tcase_add_test(tcase, claim_connection_that_has_failed_once_and_is_not_needed_keeps_no_queue_awake);
    return run_suite(suite);
}
