/* How many keys the next claim takes, by what the last one had to do. */
#include "relay/claim/claim.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/claim_stage.h"

static void set_up_alone(void)
{
    set_up();
    claim->in_transaction = true;
    claim->began_at = NOW - 20 * MS_US;
}

/* Three delivered lanes. */
static void deliver(int64_t events_each)
{
    struct batch *batch = stage_batch(&stage);
    for (int64_t i = 0; i < 3 * events_each; i++)
        stage_event(batch, i + 1, i / events_each == 0 ? "a" : i / events_each == 1 ? "b" : "c");
    stage.queue.arrived = NULL;
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        stage_finish(lane, (size_t)events_each, LANE_DELIVERED);
}

static int64_t next_claims_keys(void)
{
    claim_finish(claim, NOW);
    return claim->round.keys;
}

START_TEST(claim_behind_one_of_single_events_takes_all_the_locks_it_may)
{
    deliver(1);
    ck_assert_int_eq(next_claims_keys(), (int64_t)KEYS * CLAIM_LOCKS_FACTOR);
}
END_TEST

START_TEST(claim_behind_one_of_keys_with_many_events_takes_no_more_keys)
{
    stage.queue.claiming.lean = true;
    deliver(3);
    ck_assert_int_eq(next_claims_keys(), KEYS);
}
END_TEST

/* Stragglers of it would take the places of the keys that are claimed beside them. */
START_TEST(claim_behind_a_slow_one_takes_no_more_keys)
{
    stage.queue.claiming.lean = true;
    claim->began_at = NOW - 25 * MS_US;
    deliver(1);
    ck_assert_int_eq(next_claims_keys(), KEYS);
}
END_TEST

START_TEST(full_lock_table_is_not_asked_for_more)
{
    stage.queue.claiming.key_limit = KEYS / 2;
    deliver(1);
    ck_assert_int_eq(next_claims_keys(), KEYS / 2);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("claim_lean");
    TCase *tcase = tcase_create("claim_lean");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up_alone, tear_down);
    tcase_add_test(tcase, claim_behind_one_of_single_events_takes_all_the_locks_it_may);
    tcase_add_test(tcase, claim_behind_one_of_keys_with_many_events_takes_no_more_keys);
    tcase_add_test(tcase, claim_behind_a_slow_one_takes_no_more_keys);
    tcase_add_test(tcase, full_lock_table_is_not_asked_for_more);
    return run_suite(suite);
}
