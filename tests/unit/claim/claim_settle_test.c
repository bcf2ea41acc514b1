/* When finished lanes are settled: at once, or a moment later with the claim that is to go then. */
#include "relay/claim/claim.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/claim_stage.h"

#define LATENCY (5 * MS_US)

/* The claim was sent at NOW and has found an event, and the sink has taken that. */
static void set_up_delivered(void)
{
    set_up();
    stage.config.latency_us = LATENCY;
    claim->in_transaction = true;
    claim->sent_at = claim->began_at = NOW;
    struct batch *batch = stage_batch(&stage);
    stage_event(batch, 1, "a");
    stage.queue.arrived = NULL;
    stage_finish(batch->lanes, 1, LANE_DELIVERED);
    stage.queue.pace.poll_at = stage.queue.pace.earliest_at = NOW + LATENCY;
}

static size_t sent_by(instant_us now)
{
    claim_settle_resolved(&stage.queue, now);
    claim_ready(&stage.queue, NULL, now);
    return script.sends;
}

static instant_us deadline(instant_us now)
{
    struct pollset *ps = pollset_new();
    claim_prepare(&stage.queue, ps, now);
    instant_us at = pollset_next_deadline(ps);
    pollset_free(ps);
    return at;
}

START_TEST(settlement_travels_with_the_claim_that_goes_within_the_latency)
{
    ck_assert_uint_eq(sent_by(NOW + LATENCY - 1), 0);
    ck_assert_int_eq(deadline(NOW + LATENCY - 1), NOW + LATENCY);
    ck_assert_uint_gt(sent_by(NOW + LATENCY), 0);
    ck_assert_ptr_nonnull(claim->round.job);
    ck_assert_int_gt(claim->round.keys, 0);
}
END_TEST

START_TEST(settlement_of_what_was_announced_waits_for_no_claim)
{
    stage.queue.rest.state = REST_ROUSED;
    stage.queue.pace.took_all = _i == 1;
    ck_assert_uint_eq(sent_by(NOW + 1) > 0, _i == 1);
    ck_assert(_i == 0 || (claim->round.job && claim->round.keys == 0));
}
END_TEST

START_TEST(settlement_does_not_wait_for_a_claim_that_goes_much_later)
{
    stage.queue.pace.earliest_at = NOW + SECOND_US;
    ck_assert_uint_gt(sent_by(NOW + 1), 0);
    ck_assert_ptr_nonnull(claim->round.job);
    ck_assert_int_eq(claim->round.keys, 0);
}
END_TEST

/* The queue is paused, or the relay stops: no claim will take the settlement along. */
START_TEST(settlement_does_not_wait_where_no_claim_follows)
{
    stage.queue.pause.on = _i == 0;
    stage.queue.stopping = _i == 1;
    ck_assert_uint_gt(sent_by(NOW + 1), 0);
    ck_assert_ptr_nonnull(claim->round.job);
}
END_TEST

/* An idle connection would claim at the same instant, and the settlement would need a round trip by itself. */
START_TEST(claim_is_left_to_the_connection_that_has_something_to_settle)
{
    struct claim two[2] = {{.queue = &stage.queue, .index = 0, .state = CLAIM_IDLE, .db = claim->db}, *claim};
    two[1].index = 1;
    stage_claims(&stage, two, 2);
    claim_ready(&stage.queue, NULL, NOW + LATENCY);
    ck_assert_uint_eq(script.sends, 0);
    claim_settle_resolved(&stage.queue, NOW + LATENCY);
    ck_assert_int_gt(two[1].round.keys, 0);
    *claim = two[1];
    stage_claims(&stage, claim, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("claim_settle");
    TCase *tcase = tcase_create("claim_settle");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up_delivered, tear_down);
    tcase_add_test(tcase, settlement_travels_with_the_claim_that_goes_within_the_latency);
    tcase_add_loop_test(tcase, settlement_of_what_was_announced_waits_for_no_claim, 0, 2);
    tcase_add_test(tcase, settlement_does_not_wait_for_a_claim_that_goes_much_later);
    tcase_add_loop_test(tcase, settlement_does_not_wait_where_no_claim_follows, 0, 2);
    tcase_add_test(tcase, claim_is_left_to_the_connection_that_has_something_to_settle);
    return run_suite(suite);
}
