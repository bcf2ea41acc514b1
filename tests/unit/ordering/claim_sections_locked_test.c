/* What the statements that lock the keys of a claim have locked and seen, added up. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/sections_stage.h"

START_TEST(answer_of_another_shape_is_refused)
{
    ask(&plain, high, low);
    ck_assert(!take(SECTION_FRESH, result_of(LOCK_ALL))); /* no row */
    ck_assert_int_eq(err.kind, ERROR_INTERNAL);
    ck_assert(!take(SECTION_FRESH, event_row(1, "k")));
    PGresult *res = lock_row();
    set_bigint(res, 1, LOCKED, 1);
    ck_assert(!take(SECTION_FRESH, res));
    ck_assert(!take(SECTION_DUE, event_row(1, "k")));
    ck_assert_int_eq(plan.locked, 0);
    ck_assert(sections.waits);
}
END_TEST

START_TEST(locks_of_all_sections_are_counted_and_the_last_one_names_them)
{
    ask(&plain, high, low);
    for (size_t i = 0; i < plan.section_count; i++) {
        PGresult *res = lock_row();
        set_bigint(res, 0, LOCKED, 2);
        set_bigint(res, 0, TRIED, 3);
        set_text(res, 0, CLAIM, i + 1 < plan.section_count ? "{a}" : "{a,b}");
        set_text(res, 0, KEYLESS, i + 1 < plan.section_count ? "{}" : "{7}");
        ck_assert(take(plan.sections[i].kind, res));
    }
    ck_assert_int_eq(plan.locked, 8);
    ck_assert_int_eq(plan.tried, 12);
    ck_assert(span_equal(plan.locked_keys, span_of("{a,b}")));
    ck_assert(span_equal(plan.locked_keyless_ids, span_of("{7}")));
}
END_TEST

START_TEST(missed_keys_of_all_sections_are_told)
{
    ask(&plain, high, low);
    PGresult *res = lock_row();
    set_text(res, 0, MISSED, "{{due,1,0}}"); /* it was not found by an id */
    ck_assert(take(SECTION_DUE, res));
    res = lock_row();
    set_text(res, 0, MISSED, "{{\"},{\",-5,300},{\"\",350,360}}");
    ck_assert(take(SECTION_OLDEST, res));
    ck_assert(take(SECTION_FRESH, lock_row()));
    res = lock_row();
    set_text(res, 0, MISSED, "{{k3,900,901}}");
    ck_assert(take(SECTION_NEWEST, res));
    static const struct {
        const char *key;
        struct id_range ids;
    } expected[] = {{"due", {1, 0}}, {"},{", {-5, 300}}, {"", {350, 360}}, {"k3", {900, 901}}};
    ck_assert_uint_eq(plan.missed.count, 4);
    for (size_t i = 0; i < 4; i++) {
        ck_assert(span_equal(plan.missed.at[i].key, span_of(expected[i].key)));
        expect_range(plan.missed.at[i].ids, expected[i].ids.lo, expected[i].ids.hi);
    }
}
END_TEST

START_TEST(missed_key_without_its_ids_is_not_told)
{
    ask(&plain, high, low);
    static const char *const texts[] = {"{{k1,1,2},{k2,3", "{{k1,1,2},{k2", "{{k1,1,2},{"};
    for (size_t i = 0; i < 3; i++) {
        PGresult *res = lock_row();
        set_text(res, 0, MISSED, texts[i]);
        ck_assert(take(SECTION_FRESH, res));
        ck_assert_uint_eq(plan.missed.count, i + 1);
        ck_assert(span_equal(plan.missed.at[i].key, span_of("k1")));
    }
}
END_TEST

START_TEST(low_keys_of_all_sections_are_told)
{
    ask(&plain, high, low);
    PGresult *res = lock_row();
    set_text(res, 0, LOW, "{{k,5,5},{\"\",-9223372036854775808,-9223372036854775808}}");
    ck_assert(take(SECTION_OLDEST, res));
    ck_assert(take(SECTION_FRESH, lock_row()));
    res = lock_row();
    set_text(res, 0, LOW, "{{k,70,70}}");
    ck_assert(take(SECTION_NEWEST, res));
    ck_assert_uint_eq(plan.low.count, 3);
    ck_assert(span_equal(plan.low.at[0].key, span_of("k")));
    ck_assert_int_eq(plan.low.at[0].ids.lo, 5);
    ck_assert_uint_eq(plan.low.at[1].key.size, 0);
    ck_assert_int_eq(plan.low.at[1].ids.lo, SCAN_ID_MIN);
    ck_assert_int_eq(plan.low.at[2].ids.lo, 70);
}
END_TEST

static PGresult *row_with(int column, int64_t from, int64_t to)
{
    PGresult *res = lock_row();
    set_bigint(res, 0, column, from);
    set_bigint(res, 0, column + 1, to);
    return res;
}

START_TEST(seen_and_missed_ids_of_all_sections_make_one_range)
{
    ask(&plain, high, low);
    ck_assert(take(SECTION_OLDEST, row_with(SEEN_MIN, 20, 30)));
    ck_assert(take(SECTION_FRESH, row_with(SEEN_MIN, -600, 1010)));
    ck_assert(take(SECTION_NEWEST, row_with(SEEN_MIN, 500, 900)));
    ck_assert_int_eq(plan.report.seen_min, -600);
    ck_assert_int_eq(plan.report.seen_max, 1010);
    ck_assert(id_range_is_empty(plan.report.missed));
    ck_assert(take(SECTION_OLDEST, row_with(MISSED_MIN, 20, 30)));
    ck_assert(take(SECTION_FRESH, row_with(MISSED_MIN, -600, 1010)));
    ck_assert(take(SECTION_NEWEST, row_with(MISSED_MIN, 500, 900)));
    expect_range(plan.report.missed, -600, 1010);
    ck_assert(id_range_is_empty(plan.report.newest_left) && id_range_is_empty(plan.report.oldest_left));
}
END_TEST

START_TEST(half_of_a_range_is_none)
{
    ask(&plain, high, low);
    for (int column = 0; column <= CUT_MAX; column++) {
        if (column == LOCKED || column == TRIED)
            continue;
        PGresult *res = lock_row();
        set_bigint(res, 0, column, 600);
        ck_assert(take(SECTION_NEWEST, res));
    }
    ck_assert_int_eq(plan.report.seen_min, SCAN_ID_MIN);
    ck_assert_int_eq(plan.report.seen_max, SCAN_ID_MIN);
    ck_assert(id_range_is_empty(plan.report.missed));
    ck_assert(id_range_is_empty(plan.report.newest_left));
}
END_TEST

/* One that has seen ids from `from` to `to`, and these without a place. */
static PGresult *cut_row(int64_t from, int64_t to, struct id_range cut, bool full)
{
    PGresult *res = row_with(SEEN_MIN, from, to);
    if (!id_range_is_empty(cut)) {
        set_bigint(res, 0, CUT_MIN, cut.lo);
        set_bigint(res, 0, CUT_MAX, cut.hi);
    }
    set_bigint(res, 0, FULL, full);
    return res;
}

START_TEST(ids_without_a_place_and_all_behind_them_are_left)
{
    for (int full = 0; full < 2; full++) { /* what lies behind the rows that were seen is left anyway */
        ask(&plain, high, low);
        ck_assert(take(SECTION_OLDEST, cut_row(10, 60, (struct id_range){40, 60}, full)));
        ck_assert(take(SECTION_NEWEST, cut_row(700, 990, (struct id_range){700, 720}, full)));
        expect_range(plan.report.oldest_left, 40, 400);
        expect_range(plan.report.newest_left, 500, 720);
        ck_assert(plan.full == full);
        ck_assert(!plan.left);
        ck_assert(take(SECTION_FRESH, cut_row(1001, 1050, (struct id_range){1001, 1020}, full)));
        ck_assert(plan.left);
    }
}
END_TEST

START_TEST(ids_behind_the_last_row_are_left)
{
    ask(&plain, high, low);
    ck_assert(take(SECTION_OLDEST, cut_row(10, 60, nothing, true)));
    ck_assert(take(SECTION_NEWEST, cut_row(700, 990, nothing, true)));
    expect_range(plan.report.oldest_left, 61, 400);
    expect_range(plan.report.newest_left, 500, 699);
    ck_assert(plan.full);
    ck_assert(!plan.left);
    ask(&plain, high, low);
    ck_assert(take(SECTION_FRESH, cut_row(1001, 1050, nothing, true)));
    ck_assert(plan.full && plan.left);
    ck_assert(id_range_is_empty(plan.report.newest_left) && id_range_is_empty(plan.report.oldest_left));
}
END_TEST

START_TEST(nothing_is_left_of_a_stretch_that_was_seen_to_its_end)
{
    ask(&plain, high, low);
    ck_assert(take(SECTION_OLDEST, cut_row(10, 400, nothing, true)));
    ck_assert(take(SECTION_NEWEST, cut_row(500, 990, nothing, true)));
    ck_assert(id_range_is_empty(plan.report.newest_left) && id_range_is_empty(plan.report.oldest_left));
    ask(&plain, high, low);
    ck_assert(take(SECTION_OLDEST, cut_row(10, 60, nothing, false)));
    ck_assert(take(SECTION_NEWEST, cut_row(700, 990, nothing, false)));
    ck_assert(take(SECTION_FRESH, cut_row(1001, 1050, nothing, false)));
    ck_assert(id_range_is_empty(plan.report.newest_left) && id_range_is_empty(plan.report.oldest_left));
    ck_assert(!plan.full && !plan.left);
}
END_TEST

START_TEST(all_is_left_of_a_stretch_that_there_was_no_room_for)
{
    ask(&plain, high, low);
    for (int i = SECTION_FRESH; i <= SECTION_OLDEST; i++) {
        PGresult *res = lock_row();
        set_bigint(res, 0, FULL, 1);
        ck_assert(take((enum claim_section_kind)i, res));
    }
    expect_range(plan.report.oldest_left, low.lo, low.hi);
    expect_range(plan.report.newest_left, high.lo, high.hi);
    ck_assert(plan.left);
    ck_assert_int_eq(plan.report.seen_max, SCAN_ID_MIN);
}
END_TEST

static PGresult *tried_row(int64_t keys, bool full)
{
    PGresult *res = lock_row_of(600, 700);
    set_bigint(res, 0, TRIED, keys);
    set_bigint(res, 0, LOCKED, 0);
    set_bigint(res, 0, FULL, full);
    return res;
}

START_TEST(full_sections_of_too_few_keys_are_thin)
{
    static const struct {
        int64_t wanted, due, fresh, newest;
        bool full, thin;
    } cases[] = {{10, 0, 0, 8, true, true},  {10, 0, 0, 9, true, false}, {10, 0, 0, 8, false, false},
                 {10, 1, 3, 4, true, true},  {10, 1, 4, 4, true, false}, {10, 0, 0, 0, true, true},
                 {7, 0, 0, 6, true, true},   {7, 0, 0, 7, true, false},  {8, 0, 0, 7, true, false},
                 {64, 0, 0, 55, true, true}, {64, 0, 0, 56, true, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sections.waits = true;
        ask(&(struct claim_request){.max_keys = cases[i].wanted}, high, nothing);
        ck_assert(take(SECTION_DUE, tried_row(cases[i].due, false)));
        ck_assert(take(SECTION_FRESH, tried_row(cases[i].fresh, cases[i].full))); /* whatever of the ends was full */
        ck_assert(take(SECTION_NEWEST, tried_row(cases[i].newest, false)));
        ck_assert_msg(plan.thin == cases[i].thin, "case %zu", i);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("claim_sections_locked");
    TCase *tcase = tcase_create("claim_sections_locked");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up_sections, tear_down_sections);
    tcase_add_test(tcase, answer_of_another_shape_is_refused);
    tcase_add_test(tcase, locks_of_all_sections_are_counted_and_the_last_one_names_them);
    tcase_add_test(tcase, missed_keys_of_all_sections_are_told);
    tcase_add_test(tcase, missed_key_without_its_ids_is_not_told);
    tcase_add_test(tcase, low_keys_of_all_sections_are_told);
    tcase_add_test(tcase, seen_and_missed_ids_of_all_sections_make_one_range);
    tcase_add_test(tcase, half_of_a_range_is_none);
    tcase_add_test(tcase, ids_without_a_place_and_all_behind_them_are_left);
    tcase_add_test(tcase, ids_behind_the_last_row_are_left);
    tcase_add_test(tcase, nothing_is_left_of_a_stretch_that_was_seen_to_its_end);
    tcase_add_test(tcase, all_is_left_of_a_stretch_that_there_was_no_room_for);
    tcase_add_test(tcase, full_sections_of_too_few_keys_are_thin);
    return run_suite(suite);
}
