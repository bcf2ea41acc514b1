#include "ordering/left_behind.h"

#include "ordering/id_range.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#include <stdio.h>

static struct left_behind left;

static void tear_down(void)
{
    left_behind_clear(&left);
}

START_TEST(each_key_is_there_once_with_its_least_id)
{
    left_behind_add(&left, "a", 7);
    left_behind_add(&left, "a", 9);
    ck_assert_int_eq(left.events[0].id, 7);
    left_behind_add(&left, "a", 5);
    ck_assert_uint_eq(left.count, 1);
    ck_assert_int_eq(left.events[0].id, 5);
    ck_assert_str_eq(left.events[0].key, "a");
}
END_TEST

START_TEST(events_without_a_key_stand_for_themselves_and_an_empty_key_is_one)
{
    left_behind_add(&left, NULL, 7);
    left_behind_add(&left, NULL, 9);
    left_behind_add(&left, "", 8);
    ck_assert_uint_eq(left.count, 3);
    ck_assert_ptr_null(left.events[1].key);
    ck_assert_str_eq(left.events[2].key, "");
}
END_TEST

START_TEST(nothing_is_added_when_there_is_no_room_but_what_is_there_changes)
{
    char key[16];
    for (int i = 0; i <= LEFT_BEHIND_MAX; i++) {
        snprintf(key, sizeof key, "%d", i);
        left_behind_add(&left, key, i + 100);
    }
    ck_assert_uint_eq(left.count, LEFT_BEHIND_MAX);
    left_behind_add(&left, "3", 50);
    ck_assert_int_eq(left.events[3].id, 50);
}
END_TEST

START_TEST(moving_takes_out_what_is_gone_and_keeps_what_came_later)
{
    left_behind_add(&left, "a", 1);
    left_behind_add(&left, "b", 2);
    left_behind_add(&left, "c", 3);
    left_behind_move(&left, (int64_t[]){SCAN_ID_MIN, 20}, 2);
    ck_assert_uint_eq(left.count, 2);
    ck_assert_str_eq(left.events[0].key, "b");
    ck_assert_int_eq(left.events[0].id, 20);
    ck_assert_str_eq(left.events[1].key, "c");
    ck_assert_int_eq(left.events[1].id, 3);
    left_behind_move(&left, (int64_t[]){SCAN_ID_MIN, SCAN_ID_MIN, 5}, 3); /* of more than there is now */
    ck_assert_uint_eq(left.count, 0);
}
END_TEST

START_TEST(event_is_known_by_its_key_and_id)
{
    const struct span a = SPAN_LITERAL("a"), none = SPAN_LITERAL("");
    ck_assert(!left_behind_has(&left, none, 0));
    left_behind_add(&left, "a", 7);
    left_behind_add(&left, NULL, -9);
    ck_assert(left_behind_has(&left, a, 7) && left_behind_has(&left, a, 8) && left_behind_has(&left, none, -9));
    ck_assert(!left_behind_has(&left, a, 6) && !left_behind_has(&left, none, 7) && !left_behind_has(&left, none, -8));
    ck_assert(!left_behind_has(&left, span_of("b"), 7) && !left_behind_has(&left, a, -9));
    left_behind_move(&left, (int64_t[]){8, SCAN_ID_MIN}, 2);
    ck_assert(left_behind_has(&left, a, 8));
    ck_assert(!left_behind_has(&left, a, 7) && !left_behind_has(&left, none, -9));
}
END_TEST

START_TEST(least_is_that_of_all_or_the_floor)
{
    ck_assert_int_eq(left_behind_least(&left, 10), 10);
    left_behind_add(&left, "a", 12);
    ck_assert_int_eq(left_behind_least(&left, 10), 10);
    left_behind_add(&left, "b", -4);
    ck_assert_int_eq(left_behind_least(&left, 10), -4);
}
END_TEST

START_TEST(parameters_are_two_arrays_in_the_same_order)
{
    struct arena *arena = arena_new();
    left_behind_add(&left, "key-a", 258);
    left_behind_add(&left, NULL, 7);
    struct statement st = statement_of("select"), same = statement_of("select");
    left_behind_add_to(&left, arena, &st);
    statement_add_texts(&same, arena, (struct span[]){span_of("key-a"), {NULL, 0}}, 2);
    statement_add_ids(&same, arena, (int64_t[]){258, 7}, 2);
    ck_assert_int_eq(st.count, 2);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(st.lengths[i], same.lengths[i]);
        ck_assert_mem_eq(st.values[i], same.values[i], (size_t)same.lengths[i]);
    }
    arena_free(arena);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("left_behind");
    TCase *tcase = tcase_create("left_behind");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, NULL, tear_down);
    tcase_add_test(tcase, each_key_is_there_once_with_its_least_id);
    tcase_add_test(tcase, events_without_a_key_stand_for_themselves_and_an_empty_key_is_one);
    tcase_add_test(tcase, nothing_is_added_when_there_is_no_room_but_what_is_there_changes);
    tcase_add_test(tcase, moving_takes_out_what_is_gone_and_keeps_what_came_later);
    tcase_add_test(tcase, event_is_known_by_its_key_and_id);
    tcase_add_test(tcase, least_is_that_of_all_or_the_floor);
    tcase_add_test(tcase, parameters_are_two_arrays_in_the_same_order);
    return run_suite(suite);
}
