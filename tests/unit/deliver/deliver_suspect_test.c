/* Failures that are the destination's or the event's: what the order of verdicts proves. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/fake_sink.h"

#define REFUSES VERDICT_RETRY, ERROR_OVERLOADED

static int64_t next_id = 1000;

/* Claimed, again, in a batch of its own, and sent. */
static struct lane *send_event(int64_t id, const char *key)
{
    outlet->circuit = (struct circuit){0}; /* what it keeps away is another test */
    fake->sent_count = 0;
    struct lane *lane = stage_event(stage_batch(&stage), id, key)->lane;
    turn();
    ck_assert(in_flight(id));
    return lane;
}

static int64_t send_other(void)
{
    int64_t id = next_id++;
    send_event(id, NULL);
    return id;
}

static void take_other(void)
{
    ack(send_other());
    turn();
}

static enum lane_outcome refuse_at_once(struct lane *lane)
{
    fails(lane->first->event.id, REFUSES);
    turn();
    return lane->outcome;
}

START_TEST(first_failure_proves_nothing_though_others_are_taken)
{
    struct lane *lane = send_event(1, "a");
    take_other();
    ck_assert_int_eq(refuse_at_once(lane), LANE_RELEASED);
    ck_assert_int_ge(lane->release_us, stage.config.retry_base_us);
}
END_TEST

START_TEST(event_that_fails_again_while_others_are_taken_counts_an_attempt)
{
    ck_assert_int_eq(refuse_at_once(send_event(1, "a")), LANE_RELEASED);
    take_other();
    struct lane *again = send_event(1, "a");
    take_other();
    ck_assert_int_eq(refuse_at_once(again), LANE_RETRY);
}
END_TEST

START_TEST(event_that_is_refused_at_once_counts_after_three_times_between_others)
{
    ck_assert_int_eq(refuse_at_once(send_event(1, "a")), LANE_RELEASED);
    for (int i = 0; i < 2; i++) {
        take_other();
        ck_assert_int_eq(refuse_at_once(send_event(1, "a")), LANE_RELEASED);
    }
    take_other();
    ck_assert_int_eq(refuse_at_once(send_event(1, "a")), LANE_RETRY);
}
END_TEST

START_TEST(nothing_counts_while_nothing_is_taken)
{
    take_other();
    for (int i = 0; i < 50; i++)
        ck_assert_int_eq(refuse_at_once(send_event(1, "a")), LANE_RELEASED);
}
END_TEST

/* Else it might be the trial each time, and keep the circuit open for all. */
START_TEST(others_are_tried_before_what_may_have_failed_by_its_own_fault)
{
    struct lane *lane = send_event(1, "a");
    ck_assert_int_eq(refuse_at_once(lane), LANE_RELEASED);
    ck_assert_int_eq(outlet->circuit.state, CIRCUIT_OPEN);
    ck_assert_int_ge(lane->release_us, outlet->circuit.retry_at - now + SECOND_US);
    struct lane *unreachable = send_event(2, "b");
    fails(2, VERDICT_RETRY, ERROR_UNREACHABLE);
    turn();
    ck_assert_int_eq(unreachable->release_us, outlet->circuit.retry_at - now);
}
END_TEST

/* One destination of many may ask for an hour. */
START_TEST(what_one_event_is_told_keeps_the_others_away_for_a_short_time_only)
{
    const int64_t hour_us = 3600 * SECOND_US;
    struct lane *lane = send_event(1, "a");
    resolve_with(1, REFUSES, hour_us);
    turn();
    ck_assert_int_eq(outlet->circuit.retry_at, now + 30 * SECOND_US);
    ck_assert_int_ge(lane->release_us, hour_us);
    send_event(2, "b");
    resolve_with(2, VERDICT_RETRY, ERROR_ROUTE, hour_us);
    turn();
    ck_assert_int_eq(outlet->routes.first->circuit.retry_at, now + hour_us);
}
END_TEST

/* A receiver that goes away takes nothing new and still answers what it has. */
START_TEST(acks_of_what_was_sent_before_do_not_prove_that_others_are_taken)
{
    int64_t old[10];
    for (size_t i = 0; i < 10; i++)
        old[i] = send_other();
    for (size_t i = 0; i < 10; i += 2) {
        struct lane *lane = send_event(1, "a");
        ack(old[i]);
        turn();
        ck_assert_int_eq(refuse_at_once(lane), LANE_RELEASED);
        ack(old[i + 1]);
        turn();
    }
}
END_TEST

START_TEST(ack_of_what_was_sent_together_with_it_does_not_prove_it_either)
{
    ck_assert_int_eq(refuse_at_once(send_event(1, "a")), LANE_RELEASED);
    take_other();
    outlet->circuit = (struct circuit){0};
    struct batch *both = stage_batch(&stage);
    int64_t other = next_id++;
    stage_event(both, other, NULL);
    struct lane *lane = stage_event(both, 1, "a")->lane;
    turn();
    ack(other);
    turn();
    ck_assert_int_eq(refuse_at_once(lane), LANE_RELEASED);
}
END_TEST

static void turn_receiver(uint64_t seed)
{
    struct rng rng = {seed};
    int64_t waiting[8];
    for (size_t i = 0; i < 8; i++)
        waiting[i] = send_other();
    struct lane *lane = send_event(1, "a");
    for (size_t left = 8; left > 0; left--) {
        size_t at = rng_next(&rng) % left;
        ack(waiting[at]);
        waiting[at] = waiting[left - 1];
        if (rng_next(&rng) % 2)
            turn();
        if (rng_next(&rng) % 2)
            continue;
        ck_assert_int_eq(refuse_at_once(lane), LANE_RELEASED);
        lane = send_event(1, "a");
    }
    ck_assert_int_eq(refuse_at_once(lane), LANE_RELEASED);
}

/* Whatever the order in which answers arrive: what was sent before the receiver turned is taken, what was sent after it
 * is refused, and so nothing counts an attempt. */
START_TEST(receiver_that_turns_costs_no_attempt_in_any_order_of_answers)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        tear_down();
        set_up();
        turn_receiver(seed);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("deliver_suspect");
    TCase *tcase = tcase_create("deliver_suspect");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, first_failure_proves_nothing_though_others_are_taken);
    tcase_add_test(tcase, event_that_fails_again_while_others_are_taken_counts_an_attempt);
    tcase_add_test(tcase, event_that_is_refused_at_once_counts_after_three_times_between_others);
    tcase_add_test(tcase, nothing_counts_while_nothing_is_taken);
    tcase_add_test(tcase, others_are_tried_before_what_may_have_failed_by_its_own_fault);
    tcase_add_test(tcase, what_one_event_is_told_keeps_the_others_away_for_a_short_time_only);
    tcase_add_test(tcase, acks_of_what_was_sent_before_do_not_prove_that_others_are_taken);
    tcase_add_test(tcase, ack_of_what_was_sent_together_with_it_does_not_prove_it_either);
    tcase_add_test(tcase, receiver_that_turns_costs_no_attempt_in_any_order_of_answers);
    return run_suite(suite);
}
