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

/* ---- what an entry covers ---- */

static void find_covered(int64_t id)
{
    probe(1000000, 0, false, 0);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 3);
    floor_probed(2, id, true, 0);
    ck_assert_int_eq(ordering_per_key.least(o), id);
}

START_TEST(who_moves_entries_is_asked_before_a_covered_event_is_passed)
{
    find_covered(77);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 4);
    ck_assert_ptr_nonnull(strstr(statements[2].sql, "courier.movers"));
    ck_assert_int_eq(parameter(3, 1), 77);
    floor_probed(3, 500, false, 0);
    ck_assert_int_eq(ordering_per_key.least(o), 500);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 3); /* as before */
}
END_TEST

START_TEST(covered_events_are_passed_some_at_a_time)
{
    find_covered(77);
    ordering_per_key.probe(o, 0, arena, statements);
    floor_probed(3, 0, false, 5077);
    ck_assert_int_eq(ordering_per_key.least(o), 5078);
    ordering_per_key.probe(o, 0, arena, statements);
    ck_assert_int_eq(parameter(2, 1), 5078);
}
END_TEST

START_TEST(who_moves_entries_is_asked_once_a_second)
{
    find_covered(77);
    ck_assert_uint_eq(ordering_per_key.probe(o, 5, arena, statements), 4);
    floor_probed(3, 78, true, 0);
    ck_assert_uint_eq(ordering_per_key.probe(o, SECOND_US, arena, statements), 3);
    ck_assert_uint_eq(ordering_per_key.probe(o, SECOND_US + 5, arena, statements), 4);
}
END_TEST

START_TEST(covered_events_are_not_passed_where_a_filter_hides_some)
{
    ordering_per_key.close(o);
    struct ordering_options options = options_with(true, false);
    options.filter = true;
    o = ordering_per_key.open(&options, &err);
    find_covered(77);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 3);
}
END_TEST

START_TEST(answer_to_a_probe_does_not_undo_what_a_claim_has_found_meanwhile)
{
    probe(1000, 0, false, 0);
    probe(1000, 0, true, 600);
    ordering_per_key.probe(o, 0, arena, statements);
    claim();
    PGresult *res = lock_row(1000);
    set_bigint(res, 0, BARE_MIN, 20);
    ck_assert(take_result(0, res));
    floor_probed(2, 700, false, 0);
    ck_assert_int_eq(ordering_per_key.least(o), 20);
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
    tcase_add_test(tcase, who_moves_entries_is_asked_before_a_covered_event_is_passed);
    tcase_add_test(tcase, covered_events_are_passed_some_at_a_time);
    tcase_add_test(tcase, who_moves_entries_is_asked_once_a_second);
    tcase_add_test(tcase, covered_events_are_not_passed_where_a_filter_hides_some);
    tcase_add_test(tcase, answer_to_a_probe_does_not_undo_what_a_claim_has_found_meanwhile);
    return run_suite(suite);
}
