/* What a claim of per_key finds out by the way: below which id there is nothing any more. */
#include "tests/support/run_suite.h"
#include "tests/unit/per_key_stage.h"

/* A claim whose stretches were looked at whole, and which has seen no id below `seen`. */
static void look(int64_t seen)
{
    claim();
    PGresult *res = lock_row(SCAN_ID_MIN);
    if (seen != SCAN_ID_MIN)
        set_bigint(res, 0, 9, seen);
    ck_assert(take_result(0, res));
}

START_TEST(floor_rises_over_what_a_claim_has_seen_to_be_gone)
{
    probe(1000, 0, false, 0);
    look(SCAN_ID_MIN);
    int64_t half = plan.scan.oldest.hi;
    ck_assert_int_lt(half, 1000);
    ck_assert_int_eq(ordering_per_key.least(o), half + 1);
    finish_claim();
    claim();
    ck_assert_int_eq(parameter(1, 2), half + 1);
}
END_TEST

START_TEST(floor_stops_at_the_first_id_that_a_claim_has_seen)
{
    probe(1000, 0, false, 0);
    look(77);
    ck_assert_int_eq(ordering_per_key.least(o), 77);
}
END_TEST

START_TEST(floor_stops_where_a_claim_has_stopped_to_look)
{
    probe(1000, 0, false, 0);
    claim();
    PGresult *res = lock_row(SCAN_ID_MIN);
    set_bigint(res, 0, 1, 55);
    ck_assert(take_result(0, res));
    ck_assert_int_eq(ordering_per_key.least(o), 55);
}
END_TEST

START_TEST(floor_does_not_rise_by_a_claim_from_before_everything_was_forgotten)
{
    probe(1000, 0, false, 0);
    claim();
    ordering_per_key.forget(o);
    probe(2000, 0, false, 0);
    ck_assert(take_result(0, lock_row(SCAN_ID_MIN)));
    ck_assert_int_eq(ordering_per_key.least(o), SCAN_ID_MIN);
}
END_TEST

START_TEST(floor_does_not_rise_over_ids_that_a_claim_has_passed_and_that_are_not_settled)
{
    probe(1000, 1, false, 0);
    probe(40000, 1, false, 0);
    look(SCAN_ID_MIN);
    ck_assert(!id_range_is_empty(plan.scan.oldest));
    ck_assert_int_eq(ordering_per_key.least(o), SCAN_ID_MIN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("per_key_floor");
    TCase *tcase = tcase_create("per_key_floor");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, floor_rises_over_what_a_claim_has_seen_to_be_gone);
    tcase_add_test(tcase, floor_stops_at_the_first_id_that_a_claim_has_seen);
    tcase_add_test(tcase, floor_stops_where_a_claim_has_stopped_to_look);
    tcase_add_test(tcase, floor_does_not_rise_by_a_claim_from_before_everything_was_forgotten);
    tcase_add_test(tcase, floor_does_not_rise_over_ids_that_a_claim_has_passed_and_that_are_not_settled);
    return run_suite(suite);
}
