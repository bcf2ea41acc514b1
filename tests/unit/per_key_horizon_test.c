/* What per_key knows of ids: what to look at again, and how far they are settled. */
#include "tests/support/run_suite.h"
#include "tests/unit/per_key_stage.h"

/* ---- claims that were cut short ---- */

START_TEST(full_answer_is_truncated_and_its_ids_asked_for_again)
{
    probe(100000, 0, false, 0);
    claim();
    int64_t lo = parameter(0, 4), limit = parameter(1, 4);
    ck_assert(take_result(0, lock_row(90000)));
    plan.rows = limit;
    finish_claim();
    ck_assert(plan.truncated);
    claim();
    ck_assert_int_eq(parameter(0, 4), lo);
    ck_assert_int_eq(parameter(1, 4), 2 * limit);
    ck_assert(take_result(0, lock_row(90000)));
    plan.spilled = true; /* rows are large: ask for fewer */
    finish_claim();
    ck_assert(plan.truncated);
    claim();
    ck_assert_int_eq(parameter(1, 4), limit);
}
END_TEST

START_TEST(truncated_sweep_is_asked_for_again)
{
    probe(1000, 0, false, 0);
    do {
        claim();
        ck_assert(take_result(0, lock_row(SCAN_ID_MIN)));
        if (!plan.scan.sweeping)
            finish_claim();
    } while (!plan.scan.sweeping);
    struct id_range swept = plan.scan.oldest;
    plan.spilled = true;
    finish_claim();
    claim();
    ck_assert(!plan.scan.sweeping);
    ck_assert_int_eq(parameter(0, 4), swept.lo);
}
END_TEST

/* ---- how far ids are settled ---- */

START_TEST(floor_rises_over_settled_ids_that_are_gone)
{
    claim();
    ck_assert_int_eq(parameter(1, 2), SCAN_ID_MIN);
    probe(1000, 0, false, 0);
    probe(1000, 0, true, 0); /* nothing up to 1000 */
    claim();
    ck_assert_int_eq(parameter(1, 2), 1001);
    ck_assert(!ordering_per_key.wants_probe(o));
}
END_TEST

START_TEST(floor_stops_at_the_first_id_that_is_there)
{
    probe(1000, 0, false, 0);
    probe(1000, 0, true, 400);
    claim();
    ck_assert_int_eq(parameter(1, 2), 400);
    probe(1000, 0, true, 400);
    claim();
    ck_assert_int_eq(parameter(1, 2), 400);
}
END_TEST

START_TEST(floor_never_passes_an_id_that_may_still_appear)
{
    probe(1000, 1, false, 0); /* somebody who drew ids is still there */
    probe(2000, 1, false, 0);
    claim();
    ck_assert_int_eq(parameter(1, 2), SCAN_ID_MIN);
    probe(3000, 0, false, 0);
    ck_assert_uint_eq(ordering_per_key.probe(o, arena, statements), 3);
    ck_assert_int_le(parameter(2, 2), 3000);
    probe(1000000, 2, true, 0);
    claim();
    ck_assert_int_le(parameter(1, 2), 3001);
}
END_TEST

START_TEST(floor_falls_when_the_sequence_is_set_back)
{
    probe(1000, 0, false, 0);
    probe(1000, 0, true, 0);
    size_t n = ordering_per_key.probe(o, arena, statements);
    probe(5, 0, n == 3, 0);
    claim();
    ck_assert_int_le(parameter(1, 2), 6);
    ck_assert_int_le(parameter(0, 1), 5);
}
END_TEST

START_TEST(table_without_a_readable_sequence_has_no_floor)
{
    ordering_per_key.close(o);
    open_with(false, false);
    probe(1000, 0, false, 0);
    probe(1000, 0, false, 0);
    claim();
    ck_assert_int_eq(parameter(1, 2), SCAN_ID_MIN);
    /* The greatest visible id falls as events are delivered; that is no sequence set back. */
    probe(10, 0, false, 0);
    claim();
    ck_assert_int_eq(parameter(0, 1), 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("per_key_horizon");
    TCase *tcase = tcase_create("per_key_horizon");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, full_answer_is_truncated_and_its_ids_asked_for_again);
    tcase_add_test(tcase, truncated_sweep_is_asked_for_again);
    tcase_add_test(tcase, floor_rises_over_settled_ids_that_are_gone);
    tcase_add_test(tcase, floor_stops_at_the_first_id_that_is_there);
    tcase_add_test(tcase, floor_never_passes_an_id_that_may_still_appear);
    tcase_add_test(tcase, floor_falls_when_the_sequence_is_set_back);
    tcase_add_test(tcase, table_without_a_readable_sequence_has_no_floor);
    return run_suite(suite);
}
