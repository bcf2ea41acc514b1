/* The way to rest, and back. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/rest_stage.h"

START_TEST(queue_without_work_for_a_second_rests_for_an_hour)
{
    rest_step(queue, IDLE_AT - 1);
    is_awake(false);
    fall_asleep();
    ck_assert_int_eq(rest->until, IDLE_AT + HOUR_US);
    ck_assert_int_eq(queue->pace.poll_at, INSTANT_NEVER);
    rest_hear(queue, IDLE_AT + HOUR_US - 1);
    ck_assert_int_eq(rest->state, REST_RESTING);
    rest_hear(queue, IDLE_AT + HOUR_US);
    is_awake(true);
    ck_assert_int_eq(queue->pace.poll_at, IDLE_AT + HOUR_US);
    ck_assert_int_le(queue->pace.claim_by, IDLE_AT + HOUR_US);
}
END_TEST

START_TEST(work_begins_the_wait_anew)
{
    pending = true;
    rest_step(queue, IDLE_AT - 1);
    pending = false;
    rest_step(queue, IDLE_AT + QUIET_US - 2);
    is_awake(false);
    rest_step(queue, IDLE_AT + QUIET_US - 1);
    ck_assert_int_eq(rest->state, REST_ASKING);
}
END_TEST

START_TEST(queue_with_many_finds_in_a_second_does_not_rest)
{
    queue->pace.finds += 15;
    rest_step(queue, IDLE_AT);
    ck_assert_int_eq(rest->state, REST_ASKING);
    answer((struct rest_answer){.failed = true}, IDLE_AT);
    queue->pace.finds++;
    rest_step(queue, IDLE_AT + MINUTE_US);
    ck_assert_int_eq(rest->state, REST_ASKING);
    answer((struct rest_answer){.failed = true}, IDLE_AT + MINUTE_US);
    queue->pace.finds += 16;
    rest_step(queue, IDLE_AT + 2 * MINUTE_US);
    is_awake(false);
    rest_step(queue, IDLE_AT + 2 * MINUTE_US + SECOND_US - 1);
    is_awake(false);
    rest_step(queue, IDLE_AT + 2 * MINUTE_US + SECOND_US);
    ck_assert_int_eq(rest->state, REST_ASKING);
}
END_TEST

START_TEST(event_by_itself_is_claimed_and_the_locks_are_held_on)
{
    fall_asleep();
    instant_us at = IDLE_AT + SECOND_US;
    rest_notified(queue, true, at);
    ck_assert_int_eq(rest->state, REST_ROUSED);
    ck_assert_int_eq(rest->lock, REST_LOCKED);
    ck_assert_int_eq(queue->pace.poll_at, at);
    rest_step(queue, at); /* the claim goes first */
    ck_assert_int_eq(rest->state, REST_ROUSED);
    queue->pace.poll_at = INSTANT_NEVER / 2;
    queue->pace.finds++;
    rest_step(queue, at + MS_US);
    ck_assert_int_eq(rest->state, REST_LOOKING);
    rest_notified(queue, true, at + MS_US); /* and the look sees what was notified before, alone */
    ck_assert_int_eq(rest->state, REST_ROUSED);
    rest_step(queue, at + MS_US);
    ck_assert_int_eq(rest->state, REST_ROUSED);
    queue->pace.poll_at = INSTANT_NEVER / 2;
    rest_step(queue, at + 2 * MS_US);
    answer((struct rest_answer){0}, at + 2 * MS_US);
    ck_assert_int_eq(rest->state, REST_RESTING);
    ck_assert_int_eq(rest->lock, REST_LOCKED);
}
END_TEST

START_TEST(queue_with_many_events_a_second_gives_its_locks_back)
{
    fall_asleep();
    queue->pace.finds += REST_FINDS_MAX;
    rest_step(queue, IDLE_AT + SECOND_US);
    rest_notified(queue, true, IDLE_AT + SECOND_US + 1);
    is_awake(true);
}
END_TEST

START_TEST(what_is_no_event_wakes_the_queue_for_good)
{
    fall_asleep();
    rest_notified(queue, false, IDLE_AT + SECOND_US);
    is_awake(true);
}
END_TEST

START_TEST(event_that_takes_long_wakes_the_queue_for_good)
{
    fall_asleep();
    rest_notified(queue, true, IDLE_AT + SECOND_US);
    rest_step(queue, IDLE_AT + SECOND_US + 500 * MS_US - 1);
    ck_assert_int_eq(rest->state, REST_ROUSED);
    rest_step(queue, IDLE_AT + SECOND_US + 500 * MS_US);
    is_awake(true);
}
END_TEST

START_TEST(queue_that_may_not_rest_is_asked_about_once_a_minute)
{
    rest_step(queue, IDLE_AT);
    answer((struct rest_answer){.obstacle = "no trigger"}, IDLE_AT);
    is_awake(false);
    rest_step(queue, IDLE_AT + MINUTE_US - 1);
    is_awake(false);
    rest_step(queue, IDLE_AT + MINUTE_US);
    ck_assert_int_eq(rest->state, REST_ASKING);
    answer((struct rest_answer){.failed = true}, IDLE_AT + MINUTE_US);
    is_awake(false);
    ck_assert_int_eq(rest->try_at, IDLE_AT + 2 * MINUTE_US);
}
END_TEST

START_TEST(question_that_is_lost_with_its_connection_is_asked_again_soon)
{
    rest_step(queue, IDLE_AT);
    queue->side_status.connected = false;
    answer((struct rest_answer){.failed = true}, IDLE_AT);
    is_awake(false);
    ck_assert_int_eq(rest->try_at, IDLE_AT + SECOND_US);
}
END_TEST

START_TEST(locks_that_are_refused_are_tried_again_soon)
{
    rest_step(queue, IDLE_AT);
    may_rest(IDLE_AT);
    rest_lock_moved(queue, true);
    rest_lock_answered(queue, false, 77, 7);
    rest_step(queue, IDLE_AT);
    is_awake(false);
    rest_step(queue, IDLE_AT + 50 * MS_US);
    ck_assert_int_eq(rest->lock, REST_LOCK_WANTED);
}
END_TEST

START_TEST(writers_are_waited_for_ever_more_seldom)
{
    static char writers[] = "{3/7}";
    lock(IDLE_AT);
    instant_us at = IDLE_AT;
    static const int64_t pauses_ms[] = {50, 100, 200, 400, 800, 1600, 3200, 5000, 5000};
    for (size_t i = 0; i < sizeof pauses_ms / sizeof pauses_ms[0]; i++) {
        answer((struct rest_answer){.may = true, .held = true, .writers = writers}, at);
        rest_step(queue, at + pauses_ms[i] * MS_US - 1);
        ck_assert_int_eq(rest->ask_again_at, at + pauses_ms[i] * MS_US);
        at += pauses_ms[i] * MS_US;
        rest_step(queue, at);
        ck_assert_int_eq(queue->side_requests.rest, REST_ASKS_LEFT);
    }
    may_rest(at);
    ck_assert_int_eq(queue->side_requests.rest, REST_ASKS_LOOK);
}
END_TEST

START_TEST(locks_that_producers_do_not_see_are_given_back)
{
    lock(IDLE_AT);
    answer((struct rest_answer){.may = true}, IDLE_AT);
    is_awake(true);
    ck_assert_int_eq(rest->try_at, IDLE_AT + MINUTE_US);
}
END_TEST

START_TEST(answer_to_an_older_question_is_none)
{
    come_to_look(IDLE_AT);
    queue->rest_answer = (struct rest_answer){.number = queue->side_requests.rest_number - 1};
    rest_step(queue, IDLE_AT);
    ck_assert_int_eq(rest->state, REST_LOOKING);
}
END_TEST

START_TEST(something_left_keeps_the_queue_awake_ever_longer)
{
    instant_us at = IDLE_AT;
    static const int64_t pauses_s[] = {1, 2, 4, 8, 16, 30, 30};
    come_to_look(at);
    for (size_t i = 0; i < sizeof pauses_s / sizeof pauses_s[0]; i++) {
        answer((struct rest_answer){.waiting = true}, at);
        is_awake(true);
        ck_assert_int_eq(rest->try_at, at + pauses_s[i] * SECOND_US);
        rest->lock = REST_UNLOCKED;
        rest->may_until = 0;
        at = rest->try_at;
        come_to_look(at);
    }
}
END_TEST

START_TEST(look_that_takes_long_is_made_the_more_seldom)
{
    come_to_look(IDLE_AT);
    answer((struct rest_answer){.waiting = true}, IDLE_AT + SECOND_US);
    ck_assert_int_eq(rest->try_at, IDLE_AT + SECOND_US + 100 * SECOND_US);
}
END_TEST

START_TEST(what_is_left_does_not_matter_while_nobody_may_claim)
{
    come_to_look(IDLE_AT);
    answer((struct rest_answer){.waiting = true, .idle = true}, IDLE_AT);
    ck_assert_int_eq(rest->state, REST_RESTING);
}
END_TEST

START_TEST(queue_rests_until_something_is_due)
{
    come_to_look(IDLE_AT);
    answer((struct rest_answer){.due = true, .due_us = 5 * SECOND_US}, IDLE_AT + MS_US);
    ck_assert_int_eq(rest->until, IDLE_AT + MS_US + 5 * SECOND_US);
}
END_TEST

START_TEST(what_is_due_already_keeps_the_queue_awake)
{
    come_to_look(IDLE_AT);
    answer((struct rest_answer){.due = true, .due_us = -1}, IDLE_AT);
    is_awake(true);
}
END_TEST

START_TEST(regular_task_that_nobody_announces_ends_the_rest)
{
    stage.upkeep.due_at[UPKEEP_LOOK] = NOW;
    stage.upkeep.due_at[UPKEEP_DAYS] = IDLE_AT + 7 * SECOND_US;
    fall_asleep();
    ck_assert_int_eq(rest->until, IDLE_AT + 7 * SECOND_US);
}
END_TEST

START_TEST(claim_since_the_look_was_asked_for_makes_it_worthless)
{
    come_to_look(IDLE_AT);
    stage.claim.sent_at = IDLE_AT;
    answer((struct rest_answer){0}, IDLE_AT + MS_US);
    is_awake(true);
}
END_TEST

START_TEST(notification_on_the_way_ends_it)
{
    come_to_look(IDLE_AT);
    rest_notified(queue, false, IDLE_AT);
    is_awake(true);
    ck_assert_int_eq(queue->pace.poll_at, IDLE_AT);
    queue->rest_answer.number = queue->side_requests.rest_number - 1; /* of the look */
    rest_step(queue, IDLE_AT);
    is_awake(true);
}
END_TEST

START_TEST(locks_that_come_too_late_are_given_back)
{
    rest_step(queue, IDLE_AT);
    may_rest(IDLE_AT);
    rest_lock_moved(queue, true);
    rest_notified(queue, false, IDLE_AT);
    rest_lock_answered(queue, true, 77, 7);
    is_awake(true);
}
END_TEST

START_TEST(lost_connection_ends_the_rest_and_asks_how_far_ids_go)
{
    fall_asleep();
    rest_lost(queue, IDLE_AT + 1);
    is_awake(false);
    ck_assert(queue->side_requests.new_probe && !queue->side_requests.probe_answered);
    ck_assert_int_eq(queue->pace.poll_at, IDLE_AT + 1);
}
END_TEST

START_TEST(what_the_relay_itself_finds_out_ends_the_rest)
{
    fall_asleep();
    rest_hear(queue, IDLE_AT + 1);
    ck_assert_int_eq(rest->state, REST_RESTING);
    queue->pace.poll_at = IDLE_AT + 2;
    rest_hear(queue, IDLE_AT + 2);
    is_awake(true);
}
END_TEST

START_TEST(queue_that_never_rests_asks_nothing)
{
    rest_open(queue, true);
    rest_step(queue, IDLE_AT + HOUR_US);
    is_awake(false);
}
END_TEST

START_TEST(loop_is_woken_for_each_step)
{
    struct pollset *ps = pollset_new();
    pollset_clear(ps);
    rest_prepare(queue, ps, NOW);
    ck_assert_int_eq(pollset_next_deadline(ps), IDLE_AT);
    fall_asleep();
    pollset_clear(ps);
    rest_prepare(queue, ps, IDLE_AT);
    ck_assert_int_eq(pollset_next_deadline(ps), IDLE_AT + MINUTE_US);
    rest_step(queue, IDLE_AT + MINUTE_US);
    pollset_clear(ps);
    rest_prepare(queue, ps, IDLE_AT + MINUTE_US);
    ck_assert_int_eq(pollset_next_deadline(ps), IDLE_AT + HOUR_US);
    pollset_free(ps);
}
END_TEST

static void add_tests(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, queue_without_work_for_a_second_rests_for_an_hour);
    tcase_add_test(tcase, work_begins_the_wait_anew);
    tcase_add_test(tcase, queue_with_many_finds_in_a_second_does_not_rest);
    tcase_add_test(tcase, event_by_itself_is_claimed_and_the_locks_are_held_on);
    tcase_add_test(tcase, queue_with_many_events_a_second_gives_its_locks_back);
    tcase_add_test(tcase, what_is_no_event_wakes_the_queue_for_good);
    tcase_add_test(tcase, event_that_takes_long_wakes_the_queue_for_good);
    tcase_add_test(tcase, queue_that_may_not_rest_is_asked_about_once_a_minute);
    tcase_add_test(tcase, question_that_is_lost_with_its_connection_is_asked_again_soon);
    tcase_add_test(tcase, locks_that_are_refused_are_tried_again_soon);
    tcase_add_test(tcase, writers_are_waited_for_ever_more_seldom);
    tcase_add_test(tcase, locks_that_producers_do_not_see_are_given_back);
    tcase_add_test(tcase, answer_to_an_older_question_is_none);
    tcase_add_test(tcase, something_left_keeps_the_queue_awake_ever_longer);
    tcase_add_test(tcase, look_that_takes_long_is_made_the_more_seldom);
    tcase_add_test(tcase, what_is_left_does_not_matter_while_nobody_may_claim);
    tcase_add_test(tcase, queue_rests_until_something_is_due);
    tcase_add_test(tcase, what_is_due_already_keeps_the_queue_awake);
    tcase_add_test(tcase, regular_task_that_nobody_announces_ends_the_rest);
    tcase_add_test(tcase, claim_since_the_look_was_asked_for_makes_it_worthless);
    tcase_add_test(tcase, notification_on_the_way_ends_it);
    tcase_add_test(tcase, locks_that_come_too_late_are_given_back);
    tcase_add_test(tcase, lost_connection_ends_the_rest_and_asks_how_far_ids_go);
    tcase_add_test(tcase, what_the_relay_itself_finds_out_ends_the_rest);
    tcase_add_test(tcase, queue_that_never_rests_asks_nothing);
    tcase_add_test(tcase, loop_is_woken_for_each_step);
}

int main(void)
{
    Suite *suite = suite_create("rest");
    TCase *tcase = tcase_create("rest");
    suite_add_tcase(suite, tcase);
    add_tests(tcase);
    return run_suite(suite);
}
