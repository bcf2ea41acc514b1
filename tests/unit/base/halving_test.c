/* Halving finds the one row that does not pass, in a list that stays as it is and in one that changes. */
#include "relay/base/halving.h"

#include "tests/support/run_suite.h"

static bool has(struct halving_part part, size_t row)
{
    return row >= part.at && row < part.at + part.count;
}

START_TEST(list_is_halved_down_to_the_things_that_do_not_pass)
{
    struct halving_list list;
    size_t found[2], found_count = 0, tries = 0, passed = 0;
    for (halving_list_begin(&list, 1000); list.count > 0; tries++) {
        struct halving_part part = halving_list_part(&list);
        if (!has(part, 3) && !has(part, 777)) {
            passed += part.count;
            halving_list_succeeded(&list);
        } else if (halving_list_failed(&list)) {
            ck_assert_uint_lt(found_count, 2);
            found[found_count++] = part.at;
        }
    }
    ck_assert_uint_eq(found_count, 2);
    ck_assert_uint_eq(found[0], 3);
    ck_assert_uint_eq(found[1], 777);
    ck_assert_uint_eq(passed, 998);
    ck_assert_uint_le(tries, 40);
}
END_TEST

START_TEST(longest_list_of_which_nothing_passes_has_room_for_its_parts)
{
    struct halving_list list;
    size_t most = 0;
    halving_list_begin(&list, (size_t)1 << 31);
    while (!halving_list_failed(&list))
        most = list.count > most ? list.count : most;
    ck_assert_uint_le(most, HALVING_PARTS_MAX);
}
END_TEST

START_TEST(nothing_is_tried_of_an_empty_list)
{
    struct halving_list list;
    halving_list_begin(&list, 0);
    ck_assert_uint_eq(list.count, 0);
    ck_assert_uint_eq(halving_list_part(&list).count, 0);
}
END_TEST

START_TEST(limit_falls_to_one_and_grows_again)
{
    struct halving halving = {0};
    ck_assert_uint_eq(halving_room(&halving, 100), 100);
    ck_assert(!halving_failed(&halving, 100, 2));
    ck_assert_uint_eq(halving_room(&halving, 100), 50);
    ck_assert_uint_eq(halving_room(&halving, 7), 7);
    ck_assert(!halving_failed(&halving, 3, 2));
    ck_assert_uint_eq(halving_room(&halving, 100), 1);
    ck_assert(halving_failed(&halving, 1, 2));
    ck_assert_uint_eq(halving_room(&halving, 100), 1);
    for (size_t most = 2; most <= 8; most *= 2) {
        halving_succeeded(&halving, 10);
        ck_assert_uint_eq(halving_room(&halving, 100), most);
    }
    halving_succeeded(&halving, 10);
    ck_assert_uint_eq(halving_room(&halving, 100), 10);
}
END_TEST

START_TEST(what_takes_long_is_cut_into_more_than_halves)
{
    struct halving halving = {0};
    ck_assert(!halving_failed(&halving, 80, 8));
    ck_assert_uint_eq(halving.most, 10);
    ck_assert(!halving_failed(&halving, 8, 8));
    ck_assert_uint_eq(halving.most, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("halving");
    TCase *tcase = tcase_create("halving");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, list_is_halved_down_to_the_things_that_do_not_pass);
    tcase_add_test(tcase, longest_list_of_which_nothing_passes_has_room_for_its_parts);
    tcase_add_test(tcase, nothing_is_tried_of_an_empty_list);
    tcase_add_test(tcase, limit_falls_to_one_and_grows_again);
    tcase_add_test(tcase, what_takes_long_is_cut_into_more_than_halves);
    return run_suite(suite);
}
