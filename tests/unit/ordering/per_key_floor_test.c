/* What a claim of per_key finds out by the way: below which id there is nothing any more. */
#include "ordering/result.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/per_key_stage.h"

/* A claim whose stretches were looked at whole, and which has seen `seen` alone; SCAN_ID_MIN: nothing. */
static void look(int64_t seen)
{
    claim();
    if (seen != SCAN_ID_MIN)
        answer_seen(seen, seen);
    ck_assert(take_locks());
}

START_TEST(floor_rises_over_what_a_claim_has_seen_to_be_gone)
{
    probe(1000, 0, false, 0);
    look(SCAN_ID_MIN);
    ck_assert_int_eq(least(), 1001);
    finish_claim();
    claim();
    ck_assert_int_eq(read_parameter(2), 1001);
}
END_TEST

START_TEST(floor_stops_at_the_first_id_that_a_claim_has_seen)
{
    probe(1000, 0, false, 0);
    look(77);
    ck_assert_int_eq(least(), 77);
}
END_TEST

START_TEST(floor_stops_where_a_claim_has_stopped_to_look)
{
    probe(1000, 0, false, 0);
    claim();
    PGresult *res = lock_row_of(60, 80);
    set_bigint(res, 0, CUT_MIN, 70);
    set_bigint(res, 0, CUT_MAX, 80);
    answer(SECTION_OLDEST, res);
    ck_assert(take_locks());
    ck_assert_int_eq(least(), 60);
    ck_assert_int_eq(plan.report.oldest_left.lo, 70);
}
END_TEST

START_TEST(floor_does_not_rise_where_there_was_no_place_to_look)
{
    probe(1000, 0, false, 0);
    claim();
    PGresult *res = lock_row();
    set_bigint(res, 0, FULL, 1);
    answer(SECTION_OLDEST, res);
    ck_assert(take_locks());
    ck_assert_int_eq(least(), SCAN_ID_MIN);
}
END_TEST

START_TEST(floor_does_not_rise_by_a_claim_from_before_everything_was_forgotten)
{
    probe(1000, 0, false, 0);
    claim();
    ordering_per_key.forget(o);
    probe(2000, 0, false, 0);
    take_nothing();
    ck_assert_int_eq(least(), SCAN_ID_MIN);
}
END_TEST

START_TEST(floor_does_not_rise_over_ids_that_a_claim_has_passed_and_that_are_not_settled)
{
    probe(1000, 1, false, 0);
    probe(40000, 1, false, 0);
    look(SCAN_ID_MIN);
    ck_assert(!id_range_is_empty(plan.scan.oldest));
    ck_assert_int_eq(least(), SCAN_ID_MIN);
}
END_TEST

/* ---- what an entry covers ---- */

static void find_covered(int64_t id)
{
    probe(1000000, 0, false, 0);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 3);
    ck_assert_int_eq(parameter(2, 4), 1); /* nothing behind it is walked */
    floor_probed(2, id, true, 0);
    ck_assert_int_eq(least(), id);
}

/* The look after it may pass something. */
static void look_at_movers(int64_t floor, instant_us now)
{
    ck_assert_uint_eq(ordering_per_key.probe(o, now, arena, statements), 4);
    ck_assert_ptr_nonnull(strstr(statements[2].sql, "courier.movers"));
    PGresult *res = result_of(2);
    set_text(res, 0, 0, "{3/7}");
    ordering_per_key.probed(o, 2, res);
    PQclear(res);
    floor_probed(3, floor, true, 0);
    ck_assert_int_eq(least(), floor);
}

START_TEST(covered_events_are_passed_when_two_looks_have_found_who_moves_entries)
{
    find_covered(77);
    look_at_movers(77, 0);
    ck_assert_ptr_null(statements[2].values[0]);
    ck_assert_uint_eq(ordering_per_key.probe(o, SECOND_US, arena, statements), 4);
    ck_assert_str_eq(statements[2].values[0], "{3/7}");
    ck_assert_int_eq(parameter(3, 1), 77);
    ck_assert_int_gt(parameter(3, 4), 1000);
    floor_probed(3, 500, false, 0);
    ck_assert_int_eq(least(), 500);
    ck_assert_uint_eq(ordering_per_key.probe(o, 3 * SECOND_US, arena, statements), 3); /* as before */
    ck_assert_int_eq(parameter(2, 4), 1);
}
END_TEST

START_TEST(only_what_had_settled_at_the_first_look_is_passed)
{
    probe(1000, 0, false, 0);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 3);
    floor_probed(2, 77, true, 0);
    look_at_movers(77, 0);
    settle_ids(2000); /* and then these */
    ck_assert_uint_eq(ordering_per_key.probe(o, SECOND_US, arena, statements), 4);
    ck_assert_int_eq(parameter(3, 2), 1000);
}
END_TEST

START_TEST(look_at_a_sequence_that_was_set_back_does_not_count)
{
    find_covered(77);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 4);
    PGresult *res = result_of(2);
    set_bigint(res, 0, 0, 1);
    set_bigint(res, 0, 1, 5);
    ordering_per_key.probed(o, 0, res);
    PQclear(res);
    res = result_of(1);
    ordering_per_key.probed(o, 1, res);
    PQclear(res);
    res = result_of(2);
    set_text(res, 0, 0, "{3/7}");
    ordering_per_key.probed(o, 2, res);
    PQclear(res);
    floor_probed(3, 77, true, 0);
    find_covered(77);
    ck_assert_uint_eq(ordering_per_key.probe(o, SECOND_US, arena, statements), 4);
    ck_assert_ptr_null(statements[2].values[0]);
}
END_TEST

START_TEST(covered_events_are_passed_some_at_a_time)
{
    find_covered(77);
    look_at_movers(77, 0);
    ordering_per_key.probe(o, SECOND_US, arena, statements);
    floor_probed(3, 0, false, 5077);
    ck_assert_int_eq(least(), 5078);
    ck_assert_uint_eq(ordering_per_key.probe(o, SECOND_US + 1, arena, statements),
                      3); /* events without a key need no look */
    ck_assert_int_eq(parameter(2, 1), 5078);
    ck_assert_int_gt(parameter(2, 4), 1000);
}
END_TEST

START_TEST(who_moves_entries_is_asked_once_a_second)
{
    find_covered(77);
    look_at_movers(77, 5);
    ck_assert_uint_eq(ordering_per_key.probe(o, SECOND_US, arena, statements), 3);
    look_at_movers(77, SECOND_US + 5);
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

START_TEST(covered_events_are_not_passed_where_no_index_finds_those_of_a_key)
{
    ordering_per_key.close(o);
    struct ordering_options options = options_with(true, false);
    options.key_index = false;
    o = ordering_per_key.open(&options, &err);
    find_covered(77);
    ck_assert_uint_eq(ordering_per_key.probe(o, 0, arena, statements), 3);
}
END_TEST

START_TEST(ids_of_every_integer_type_are_read)
{
    static const struct {
        int size;
        char bytes[8];
        int64_t id;
    } ids[] = {{2, {0x01, 0x02}, 258},
               {2, {(char)0xff, (char)0xfe}, -2},
               {4, {0, 0x01, 0, 0}, 65536},
               {4, {(char)0x80, 0, 0, 0}, INT32_MIN},
               {8, {(char)0x80, 0, 0, 0, 0, 0, 0, 1}, INT64_MIN + 1},
               {8, {0x7f, -1, -1, -1, -1, -1, -1, -1}, INT64_MAX}};
    PGresult *res = result_of(1);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        int64_t id = 0;
        char copy[8];
        memcpy(copy, ids[i].bytes, sizeof copy);
        ck_assert_int_eq(PQsetvalue(res, 0, 0, copy, ids[i].size), 1);
        ck_assert(result_bigint(res, 0, 0, &id));
        ck_assert_int_eq(id, ids[i].id);
    }
    int64_t id = 5;
    set_text(res, 0, 0, "abc");
    ck_assert(!result_bigint(res, 0, 0, &id));
    set_text(res, 0, 0, NULL);
    ck_assert(!result_bigint(res, 0, 0, &id));
    ck_assert_int_eq(id, 5);
    PQclear(res);
}
END_TEST

START_TEST(answer_to_a_probe_does_not_undo_what_a_claim_has_found_meanwhile)
{
    probe(1000, 0, false, 0);
    probe(1000, 0, true, 600);
    ordering_per_key.probe(o, 0, arena, statements);
    claim();
    PGresult *res = lock_row_of(20, 20);
    set_text(res, 0, LOW, "{{k,20,20}}");
    answer(SECTION_OLDEST, res);
    ck_assert(take_locks());
    floor_probed(2, 700, false, 0);
    ck_assert_int_eq(least(), 20);
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
    tcase_add_test(tcase, floor_does_not_rise_where_there_was_no_place_to_look);
    tcase_add_test(tcase, floor_does_not_rise_by_a_claim_from_before_everything_was_forgotten);
    tcase_add_test(tcase, floor_does_not_rise_over_ids_that_a_claim_has_passed_and_that_are_not_settled);
    tcase_add_test(tcase, covered_events_are_passed_when_two_looks_have_found_who_moves_entries);
    tcase_add_test(tcase, only_what_had_settled_at_the_first_look_is_passed);
    tcase_add_test(tcase, look_at_a_sequence_that_was_set_back_does_not_count);
    tcase_add_test(tcase, covered_events_are_passed_some_at_a_time);
    tcase_add_test(tcase, who_moves_entries_is_asked_once_a_second);
    tcase_add_test(tcase, covered_events_are_not_passed_where_a_filter_hides_some);
    tcase_add_test(tcase, covered_events_are_not_passed_where_no_index_finds_those_of_a_key);
    tcase_add_test(tcase, ids_of_every_integer_type_are_read);
    tcase_add_test(tcase, answer_to_a_probe_does_not_undo_what_a_claim_has_found_meanwhile);
    return run_suite(suite);
}
