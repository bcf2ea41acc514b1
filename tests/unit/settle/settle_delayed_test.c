/* Settlements of lanes that end at an event that is not due. */
#include "relay/settle/settle.h"

#include "relay/claim/claim.h"
#include "relay/route/route.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#define NOW (10 * SECOND_US)

static struct stage stage;
static struct batch *batch;

static void set_up(void)
{
    stage_init(&stage, "there");
    batch = stage_batch(&stage);
}

static void tear_down(void)
{
    stage_done(&stage);
}

static struct settle_job *collect(void)
{
    return settle_collect(&stage.queue, stage.claim.batches, false);
}

static void assert_waits(const struct settle_job *job, int64_t id, int64_t delay_us)
{
    ck_assert_uint_eq(job->settlement.parked_count, 1);
    const struct settle_failure *wait = job->settlement.parked;
    ck_assert_int_eq(wait->id, id);
    ck_assert_int_eq(wait->attempts, 0);
    ck_assert_int_eq(wait->delay_us, delay_us);
    ck_assert(wait->why.data && wait->why.size == 0);
    ck_assert_uint_eq(job->settlement.resumed_key_count, 0);
}

START_TEST(key_whose_head_is_not_due_waits_without_a_failure)
{
    batch_add_delayed(batch, span_of("a"), 5, 700)->after_id = 3;
    ck_assert(claim_is_finished(&stage.claim));
    route_claimed(&stage.queue); /* there is nothing to deliver */
    struct settle_job *job = collect();
    ck_assert(!settle_is_empty(job));
    assert_waits(job, 5, 700);
    ck_assert_int_eq(job->settlement.parked->after_id, 3);
    settle_commit(&stage.queue, job, NOW);
    ck_assert_uint_eq(batch->unsettled, 0);
    ck_assert_uint_eq(stage.queue.metrics.delayed, 1);
    ck_assert_uint_eq(stage.queue.metrics.retried, 0);
    ck_assert_uint_eq(stage.noting.released_count, 0);
}
END_TEST

START_TEST(what_was_due_is_done_and_the_rest_of_the_key_waits)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    lane->waited = true;
    batch_add_delayed(batch, span_of("a"), 4, -1);
    stage_finish(lane, 3, LANE_DELIVERED);
    struct settle_job *job = collect();
    ck_assert_uint_eq(job->settlement.done_count, 3);
    assert_waits(job, 4, -1);
    settle_commit(&stage.queue, job, NOW);
    ck_assert_uint_eq(stage.queue.keys.more.count, 0);
}
END_TEST

/* How long it still has to wait: the time that the events before it took is over. */
START_TEST(deliveries_before_it_make_it_no_later)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    batch->sent_at = NOW - 3 * SECOND_US;
    batch_add_delayed(batch, span_of("a"), 4, _i ? 5 * SECOND_US : SECOND_US);
    stage_finish(lane, 3, LANE_DELIVERED);
    lane->finished_at = NOW;
    struct settle_job *job = collect();
    assert_waits(job, 4, _i ? 2 * SECOND_US : 0);
    settle_commit(&stage.queue, job, NOW);
}
END_TEST

START_TEST(failure_in_front_of_it_counts_alone)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    batch_add_delayed(batch, span_of("a"), 4, 700);
    stage_finish(lane, 1, LANE_RETRY);
    struct settle_job *job = collect();
    ck_assert_uint_eq(job->settlement.parked_count, 1);
    ck_assert_int_eq(job->settlement.parked[0].id, 2);
    settle_commit(&stage.queue, job, NOW);
    ck_assert_uint_eq(stage.queue.metrics.delayed, 0);
}
END_TEST

START_TEST(it_is_looked_for_behind_a_dead_letter)
{
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    batch_add_delayed(batch, span_of("a"), 4, 700);
    stage_finish(lane, 0, LANE_DEAD);
    settle_commit(&stage.queue, collect(), NOW);
    ck_assert_uint_eq(stage.queue.keys.more.count, 1);
}
END_TEST

START_TEST(what_is_given_back_reaches_to_it)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    batch_add_delayed(batch, span_of("a"), 9, 700);
    stage_finish(lane, 1, LANE_RELEASED);
    settle_commit(&stage.queue, collect(), NOW);
    ck_assert_int_eq(stage.noting.released.lo, 2);
    ck_assert_int_eq(stage.noting.released.hi, 9);
}
END_TEST

START_TEST(it_is_looked_at_again_when_its_claim_is_lost)
{
    batch_add_delayed(batch, span_of("a"), 5, 700);
    stage_lose(&stage);
    struct settle_job *job = settle_collect(&stage.queue, stage.queue.holds.orphans, false);
    ck_assert(settle_is_empty(job));
    settle_commit(&stage.queue, job, NOW);
    ck_assert_int_eq(stage.noting.released.lo, 5);
    ck_assert_int_eq(stage.noting.released.hi, 5);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("settle_delayed");
    TCase *tcase = tcase_create("settle_delayed");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, key_whose_head_is_not_due_waits_without_a_failure);
    tcase_add_test(tcase, what_was_due_is_done_and_the_rest_of_the_key_waits);
    tcase_add_loop_test(tcase, deliveries_before_it_make_it_no_later, 0, 2);
    tcase_add_test(tcase, failure_in_front_of_it_counts_alone);
    tcase_add_test(tcase, it_is_looked_for_behind_a_dead_letter);
    tcase_add_test(tcase, what_is_given_back_reaches_to_it);
    tcase_add_test(tcase, it_is_looked_at_again_when_its_claim_is_lost);
    return run_suite(suite);
}
