#include "relay/deliver/circuit.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#define NOW (10 * SECOND_US)

static struct circuit circuit;
static struct rng rng;
static const char deliveries[2];
static const void *const delivery = &deliveries[0], *const other = &deliveries[1];

static void set_up(void)
{
    circuit = (struct circuit){0};
    rng.state = 1;
}

START_TEST(failure_opens_it_and_says_so_once)
{
    ck_assert(circuit_fail(&circuit, delivery, 0, NOW, &rng));
    ck_assert_int_eq(circuit.state, CIRCUIT_OPEN);
    ck_assert_int_gt(circuit.retry_at, NOW);
    ck_assert_int_eq(circuit.opened_at, NOW);
    instant_us retry_at = circuit.retry_at;
    ck_assert(!circuit_fail(&circuit, delivery, 0, NOW + 1, &rng));
    ck_assert_int_eq(circuit.retry_at, retry_at); /* many failures at once are one */
    ck_assert_uint_eq(circuit.failures, 1);
}
END_TEST

START_TEST(destination_may_say_how_long_to_stay_away)
{
    circuit_fail(&circuit, delivery, 77 * SECOND_US, NOW, &rng);
    ck_assert_int_eq(circuit.retry_at, NOW + 77 * SECOND_US);
}
END_TEST

START_TEST(it_probes_when_the_wait_is_over_and_not_before)
{
    circuit_fail(&circuit, delivery, SECOND_US, NOW, &rng);
    ck_assert_int_eq(circuit_turn(&circuit, NOW + SECOND_US - 1), CIRCUIT_OPEN);
    ck_assert_int_eq(circuit_turn(&circuit, NOW + SECOND_US), CIRCUIT_PROBING);
    circuit_probed(&circuit, true, NOW + SECOND_US, &rng);
    ck_assert_int_eq(circuit_turn(&circuit, NOW + SECOND_US), CIRCUIT_HALF_OPEN);
}
END_TEST

START_TEST(failed_probes_and_trials_wait_again_without_end)
{
    instant_us now = NOW;
    circuit_fail(&circuit, delivery, 0, now, &rng);
    for (int i = 0; i < 100; i++) {
        now = circuit.retry_at;
        ck_assert_int_eq(circuit_turn(&circuit, now), CIRCUIT_PROBING);
        circuit_probed(&circuit, i % 2, now, &rng);
        if (i % 2) {
            ck_assert(circuit_begin_trial(&circuit, delivery));
            ck_assert(!circuit_fail(&circuit, delivery, 0, now, &rng));
            circuit_end_trial(&circuit, delivery);
        }
        ck_assert_int_eq(circuit.state, CIRCUIT_OPEN);
        ck_assert_int_gt(circuit.retry_at, now);
        ck_assert_int_le(circuit.retry_at, now + 2 * SECOND_US); /* back within seconds of its return */
    }
    ck_assert_int_eq(circuit.opened_at, NOW);
}
END_TEST

START_TEST(ack_closes_it_in_any_state)
{
    ck_assert(!circuit_ack(&circuit));
    circuit_fail(&circuit, delivery, SECOND_US, NOW, &rng);
    ck_assert(circuit_ack(&circuit));
    ck_assert_int_eq(circuit.state, CIRCUIT_CLOSED);
    ck_assert_uint_eq(circuit.failures, 0);
}
END_TEST

static void reach_trial(void)
{
    circuit_fail(&circuit, delivery, SECOND_US, NOW, &rng);
    circuit_turn(&circuit, NOW + SECOND_US);
    circuit_probed(&circuit, true, NOW + SECOND_US, &rng);
}

START_TEST(one_delivery_at_a_time_is_tried)
{
    ck_assert(circuit_lets_go(&circuit));
    ck_assert(!circuit_begin_trial(&circuit, delivery)); /* nothing is tried while all may go */
    reach_trial();
    ck_assert(circuit_lets_go(&circuit));
    ck_assert(circuit_begin_trial(&circuit, delivery));
    ck_assert(!circuit_lets_go(&circuit));
    circuit_end_trial(&circuit, other);
    ck_assert(!circuit_lets_go(&circuit));
    circuit_end_trial(&circuit, delivery);
    ck_assert(circuit_lets_go(&circuit));
}
END_TEST

START_TEST(only_the_trial_that_fails_opens_it_again)
{
    reach_trial();
    circuit_begin_trial(&circuit, delivery);
    ck_assert(!circuit_fail(&circuit, other, 0, NOW + 2 * SECOND_US, &rng));
    ck_assert_int_eq(circuit.state, CIRCUIT_HALF_OPEN);
    ck_assert(!circuit_fail(&circuit, delivery, 0, NOW + 2 * SECOND_US, &rng));
    ck_assert_int_eq(circuit.state, CIRCUIT_OPEN);
}
END_TEST

START_TEST(answer_that_comes_too_late_changes_nothing)
{
    circuit_probed(&circuit, false, NOW, &rng);
    ck_assert_int_eq(circuit.state, CIRCUIT_CLOSED);
    circuit_fail(&circuit, delivery, SECOND_US, NOW, &rng);
    circuit_probed(&circuit, true, NOW, &rng);
    ck_assert_int_eq(circuit.state, CIRCUIT_OPEN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("circuit");
    TCase *tcase = tcase_create("circuit");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, failure_opens_it_and_says_so_once);
    tcase_add_test(tcase, destination_may_say_how_long_to_stay_away);
    tcase_add_test(tcase, it_probes_when_the_wait_is_over_and_not_before);
    tcase_add_test(tcase, failed_probes_and_trials_wait_again_without_end);
    tcase_add_test(tcase, ack_closes_it_in_any_state);
    tcase_add_test(tcase, one_delivery_at_a_time_is_tried);
    tcase_add_test(tcase, only_the_trial_that_fails_opens_it_again);
    tcase_add_test(tcase, answer_that_comes_too_late_changes_nothing);
    return run_suite(suite);
}
