/* Events that stay: the floor goes past them, and their keys are read from them on. */
#include "ordering/left_behind.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/per_key_stage.h"

/* The last statement of a probe at that time finds `id`, of key "a". */
static void find(int64_t id, instant_us now)
{
    size_t count = ordering_per_key.probe(o, now, arena, statements);
    PGresult *res = floor_row(id, false, 0);
    set_text(res, 0, FLOOR_KEY, "a");
    ordering_per_key.probed(o, count - 1, res);
    PQclear(res);
}

/* And tells of the key what is left of it; 0: nothing. */
static void find_of_key(int64_t floor, int64_t least, instant_us now)
{
    size_t count = ordering_per_key.probe(o, now, arena, statements);
    PGresult *res = floor_row(floor, false, 0);
    set_bigint(res, 0, PLACE, 1);
    if (least)
        set_bigint(res, 0, LEAST, least);
    ordering_per_key.probed(o, count - 1, res);
    PQclear(res);
}

/* The array in a parameter holds this, once, or nothing. */
static bool has(const struct statement *st, int number, const char *key, int64_t id)
{
    struct statement other = statement_of("select");
    if (key) {
        statement_add_texts(&other, arena, (struct span[]){span_of(key)}, 1);
        statement_add_ids(&other, arena, &id, 1);
    } else {
        statement_add_texts(&other, arena, NULL, 0);
        statement_add_ids(&other, arena, NULL, 0);
    }
    for (int i = 0; i < 2; i++)
        if (st->lengths[number - 1 + i] != other.lengths[i] ||
            memcmp(st->values[number - 1 + i], other.values[i], (size_t)other.lengths[i]) != 0)
            return false;
    return true;
}

/* What the next claim and the next probe say. */
static void check_left(const char *key, int64_t id, instant_us now)
{
    claim();
    ck_assert(has(&statements[reading()], 5, key, id));
    size_t count = ordering_per_key.probe(o, now, arena, statements);
    ck_assert(has(&statements[count - 1], 5, key, id));
}

static void leave_77(void)
{
    probe(1000000, 0, false, 0);
    find(77, 0);
    find(77, SECOND_US);
}

START_TEST(event_that_stays_for_a_second_is_left_behind)
{
    probe(1000000, 0, false, 0);
    find(77, 0);
    find(77, SECOND_US - 1);
    check_left(NULL, 0, SECOND_US - 1);
    find(77, SECOND_US);
    check_left("a", 77, SECOND_US);
    find_of_key(500, 77, SECOND_US);
    claim();
    ck_assert_int_eq(read_parameter(2), 500);
    ck_assert_int_eq(least(), 77);
}
END_TEST

START_TEST(each_event_at_the_floor_has_a_second_of_its_own)
{
    probe(1000000, 0, false, 0);
    find(77, 0);
    find(78, SECOND_US - 1);
    find(78, 2 * SECOND_US - 2);
    check_left(NULL, 0, 2 * SECOND_US);
}
END_TEST

START_TEST(key_is_read_from_what_is_left_of_it_until_nothing_is)
{
    leave_77();
    find_of_key(500, 90, SECOND_US);
    check_left("a", 90, SECOND_US);
    find_of_key(500, 0, SECOND_US);
    check_left(NULL, 0, SECOND_US);
    ck_assert_int_eq(least(), 500);
}
END_TEST

START_TEST(what_was_left_behind_is_forgotten_with_everything_else)
{
    leave_77();
    size_t count = ordering_per_key.probe(o, SECOND_US, arena, statements);
    ordering_per_key.forget(o);
    PGresult *res = floor_row(500, false, 0);
    set_bigint(res, 0, PLACE, 1);
    set_bigint(res, 0, LEAST, 77);
    ordering_per_key.probed(o, count - 1, res);
    PQclear(res);
    claim();
    ck_assert(has(&statements[reading()], 5, NULL, 0));
    probe(1000000, 0, false, 0);
    find(77, 2 * SECOND_US); /* for the first time */
    check_left(NULL, 0, 2 * SECOND_US);
}
END_TEST

START_TEST(who_moves_entries_is_asked_for_what_was_left_behind_and_little_is_walked)
{
    leave_77();
    ck_assert_uint_eq(ordering_per_key.probe(o, SECOND_US, arena, statements), 4);
    ck_assert_ptr_nonnull(strstr(statements[2].sql, "courier.movers"));
    ck_assert_int_eq(parameter(3, 4), 1);
}
END_TEST

START_TEST(floor_stays_when_there_is_no_room_and_goes_on_when_there_is)
{
    probe(1000000, 0, false, 0);
    char key[16];
    for (int i = 0; i <= LEFT_BEHIND_MAX; i++)
        for (int n = 0; n < 2; n++) {
            size_t count = ordering_per_key.probe(o, (2 * i + n) * SECOND_US, arena, statements);
            PGresult *res = floor_row(100 + i, false, 0);
            snprintf(key, sizeof key, "%d", i);
            set_text(res, 0, FLOOR_KEY, key);
            ordering_per_key.probed(o, count - 1, res);
            PQclear(res);
        }
    ck_assert_int_eq(least(), 100);
    claim();
    ck_assert_int_eq(read_parameter(2), 100 + LEFT_BEHIND_MAX);
    find_of_key(100 + LEFT_BEHIND_MAX, 0, 200 * SECOND_US); /* the first of them is gone, and the next one is added */
    ck_assert_int_eq(least(), 101);
    find_of_key(900, 101, 200 * SECOND_US);
    claim();
    ck_assert_int_eq(read_parameter(2), 900);
}
END_TEST

START_TEST(list_is_looked_at_when_the_floor_has_passed_everything)
{
    leave_77();
    find_of_key(0, 77, SECOND_US);
    while (ordering_per_key.probe(o, SECOND_US, arena, statements) > 2 && parameter(2, 1) < 1000000)
        find_of_key(0, 77, SECOND_US);
    find_of_key(0, 0, SECOND_US);
    claim();
    ck_assert(has(&statements[reading()], 5, NULL, 0));
    ck_assert_uint_eq(ordering_per_key.probe(o, SECOND_US, arena, statements), 2);
}
END_TEST

START_TEST(list_counts_when_a_claim_has_moved_the_floor_meanwhile)
{
    leave_77();
    size_t count = ordering_per_key.probe(o, SECOND_US, arena, statements);
    claim();
    PGresult *res = lock_row_of(20, 20);
    set_text(res, 0, LOW, "{{k,20,20}}");
    answer(SECTION_OLDEST, res);
    ck_assert(take_locks());
    res = floor_row(500, false, 0);
    set_bigint(res, 0, PLACE, 1);
    set_bigint(res, 0, LEAST, 90);
    ordering_per_key.probed(o, count - 1, res);
    PQclear(res);
    check_left("a", 90, SECOND_US);
    ck_assert_int_eq(least(), 20);
}
END_TEST

/* And one that was put in by hand is not. */
START_TEST(floor_does_not_fall_to_an_event_that_was_left_behind)
{
    leave_77();
    find_of_key(500, 77, SECOND_US);
    claim();
    PGresult *res = lock_row_of(77, 400);
    set_text(res, 0, LOW, "{{a,77,77},{b,400,400}}");
    answer(SECTION_OLDEST, res);
    ck_assert(take_locks());
    ck_assert_int_eq(plan.report.missed.lo, 400);
    finish_claim();
    claim();
    ck_assert_int_eq(read_parameter(2), 400);
    ck_assert(has(&statements[reading()], 5, "a", 77));
}
END_TEST

START_TEST(few_rows_are_looked_at_behind_one_that_was_passed)
{
    leave_77();
    floor_probed(ordering_per_key.probe(o, SECOND_US + 1, arena, statements) - 1, 0, false, 77);
    ordering_per_key.probe(o, SECOND_US + 1, arena, statements);
    int64_t rows = parameter(2, 4);
    ck_assert_int_gt(rows, 1);
    ck_assert_int_lt(rows, 100);
    floor_probed(2, 0, false, 200);
    ordering_per_key.probe(o, SECOND_US + 1, arena, statements);
    ck_assert_int_gt(parameter(2, 4), 10 * rows);
}
END_TEST

static void open_again(bool filter, bool key_index)
{
    ordering_per_key.close(o);
    struct ordering_options options = options_with(true, false);
    options.filter = filter;
    options.key_index = key_index;
    o = ordering_per_key.open(&options, &err);
    leave_77();
    check_left(NULL, 0, 2 * SECOND_US);
}

START_TEST(nothing_is_left_behind_where_a_filter_hides_some_of_a_key)
{
    open_again(true, true);
}
END_TEST

START_TEST(nothing_is_left_behind_where_no_index_finds_those_of_a_key)
{
    open_again(false, false);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("per_key_left");
    TCase *tcase = tcase_create("per_key_left");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, event_that_stays_for_a_second_is_left_behind);
    tcase_add_test(tcase, each_event_at_the_floor_has_a_second_of_its_own);
    tcase_add_test(tcase, key_is_read_from_what_is_left_of_it_until_nothing_is);
    tcase_add_test(tcase, what_was_left_behind_is_forgotten_with_everything_else);
    tcase_add_test(tcase, who_moves_entries_is_asked_for_what_was_left_behind_and_little_is_walked);
    tcase_add_test(tcase, floor_stays_when_there_is_no_room_and_goes_on_when_there_is);
    tcase_add_test(tcase, list_is_looked_at_when_the_floor_has_passed_everything);
    tcase_add_test(tcase, list_counts_when_a_claim_has_moved_the_floor_meanwhile);
    tcase_add_test(tcase, floor_does_not_fall_to_an_event_that_was_left_behind);
    tcase_add_test(tcase, few_rows_are_looked_at_behind_one_that_was_passed);
    tcase_add_test(tcase, nothing_is_left_behind_where_a_filter_hides_some_of_a_key);
    tcase_add_test(tcase, nothing_is_left_behind_where_no_index_finds_those_of_a_key);
    return run_suite(suite);
}
