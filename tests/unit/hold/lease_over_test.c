/* Terms of leases that may be over, or are about to be: what is not under way is stopped, and what is, called back. */
#include "relay/side/side.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/lease_stage.h"

START_TEST(nothing_is_begun_from_two_thirds_of_the_term_on)
{
    struct lane *lane = leased_lane();
    lease_hold(queue, NOW + TERM_US * 2 / 3 - 1);
    ck_assert_int_eq(lane->state, LANE_OPEN);
    lease_hold(queue, NOW + TERM_US * 2 / 3);
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_int_eq(lane->outcome, LANE_RELEASED);
}
END_TEST

static size_t called_back;

static void note_called_back(struct sink *its, struct delivery *d)
{
    (void)its;
    (void)d;
    called_back++;
}

static const struct sink_type killing = {.name = "killing", .cancel = note_called_back};

/* A lane whose first event is under way in a sink that can call it back. */
static struct lane *lane_under_way(void)
{
    struct lane *lane = leased_lane();
    sink.type = &killing;
    called_back = 0;
    lane->first->delivery.sink = &sink;
    lane->unsent = lane->first->next;
    lane->in_flight = 1;
    return lane;
}

static void end_under_way(struct lane *lane)
{
    lane->in_flight = 0;
    sink.type = NULL;
}

/* The last moment at which a renewal that has failed would be sent again. */
START_TEST(what_is_under_way_is_called_back_before_its_term_is_over)
{
    struct lane *lane = lane_under_way();
    instant_us last = NOW + TERM_US - TERM_US / 12;
    ck_assert_int_eq(lease_over_at(queue), last);
    lease_hold(queue, last - 1);
    ck_assert_uint_eq(called_back, 0);
    lease_hold(queue, last);
    ck_assert_uint_eq(called_back, 1);
    lease_hold(queue, last + 1); /* once */
    ck_assert_uint_eq(called_back, 1);
    ck_assert_int_eq(lease_over_at(queue), INSTANT_NEVER);
    ck_assert_int_eq(lane->state, LANE_STOPPED);
    ck_assert(lane->hold != HOLD_LOST); /* nobody need have taken it over: what is answered all the same may count */
    end_under_way(lane);
}
END_TEST

START_TEST(what_is_renewed_in_time_is_not_called_back)
{
    struct lane *lane = lane_under_way();
    lease_renewal(queue, lane->batch->arena, NOW + TERM_US / 3);
    lease_renewed(queue, false, NOW + TERM_US / 2);
    ck_assert_int_eq(lease_over_at(queue), NOW + TERM_US / 3 + TERM_US - TERM_US / 12); /* from when it was asked for */
    lease_hold(queue, NOW + TERM_US);
    ck_assert_uint_eq(called_back, 0);
    end_under_way(lane);
}
END_TEST

START_TEST(relay_wakes_up_to_call_back_while_a_renewal_is_not_answered)
{
    struct lane *lane = lane_under_way();
    struct pollset *ps = pollset_new();
    queue->side->state = SIDE_RENEWING;
    side_prepare(queue, ps, NOW);
    ck_assert_int_eq(pollset_next_deadline(ps), NOW + TERM_US - TERM_US / 12);
    end_under_way(lane);
    pollset_free(ps);
}
END_TEST

START_TEST(what_is_under_way_is_called_back_when_the_backend_that_owns_the_leases_is_lost)
{
    struct lane *lane = lane_under_way();
    stage.config.lease_owner = _i ? LEASE_NAME : LEASE_BACKEND;
    lease_backend_lost(queue, NOW + 1);
    ck_assert_uint_eq(called_back, !_i);
    end_under_way(lane);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lease_over");
    TCase *tcase = tcase_create("lease_over");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up_leases, tear_down_leases);
    tcase_add_test(tcase, nothing_is_begun_from_two_thirds_of_the_term_on);
    tcase_add_test(tcase, what_is_under_way_is_called_back_before_its_term_is_over);
    tcase_add_test(tcase, what_is_renewed_in_time_is_not_called_back);
    tcase_add_test(tcase, relay_wakes_up_to_call_back_while_a_renewal_is_not_answered);
    tcase_add_loop_test(tcase, what_is_under_way_is_called_back_when_the_backend_that_owns_the_leases_is_lost, 0, 2);
    return run_suite(suite);
}
