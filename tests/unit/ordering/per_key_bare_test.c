/* What a claim of per_key finds out by the way: where no events are, though there are some below. */
#include "ordering/horizon.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/per_key_stage.h"

/* There was no place for the key of that event, the last of the newest that was seen. */
static PGresult *stopped_at(int64_t id)
{
    PGresult *res = lock_row_of(id, id);
    set_bigint(res, 0, CUT_MIN, id);
    set_bigint(res, 0, CUT_MAX, id);
    return res;
}

/* A claim that has looked at all of its stretches, which are ids up to 50000 and from 50001 to 100000; or stopped at
 * `left`.
 */
static void look(int64_t least, int64_t greatest, int64_t left)
{
    claim();
    ck_assert_int_eq(plan.scan.oldest.hi, 50000);
    ck_assert_int_eq(plan.scan.newest.lo, 50001);
    answer_seen(least, greatest);
    if (left != SCAN_ID_MIN)
        answer(SECTION_NEWEST, stopped_at(left));
    ck_assert(take_locks());
}

static void expect_inhabited(const struct id_range *ranges, size_t count)
{
    struct id_ranges ids;
    ordering_per_key.inhabited(o, &ids);
    ck_assert_uint_eq(ids.count, count);
    for (size_t i = 0; i < count; i++) {
        ck_assert_int_eq(ids.at[i].lo, ranges[i].lo);
        ck_assert_int_eq(ids.at[i].hi, ranges[i].hi);
    }
}

#define EXPECT_INHABITED(...)                                                                                          \
    expect_inhabited((const struct id_range[]){__VA_ARGS__},                                                           \
                     sizeof(const struct id_range[]){__VA_ARGS__} / sizeof(struct id_range))

START_TEST(all_ids_may_have_events_at_first)
{
    EXPECT_INHABITED({SCAN_ID_MIN, SCAN_ID_MAX});
}
END_TEST

START_TEST(newest_ids_are_bare_above_the_greatest_that_a_claim_has_seen)
{
    probe(100000, 0, false, 0);
    look(30000, 70000, SCAN_ID_MIN);
    EXPECT_INHABITED({30000, 70000}, {100001, SCAN_ID_MAX});
}
END_TEST

START_TEST(newest_ids_are_all_bare_where_a_claim_has_seen_only_the_oldest)
{
    probe(100000, 0, false, 0);
    look(30000, 40000, SCAN_ID_MIN);
    EXPECT_INHABITED({30000, 50000}, {100001, SCAN_ID_MAX});
}
END_TEST

START_TEST(newest_ids_are_bare_only_where_a_claim_has_looked)
{
    probe(100000, 0, false, 0);
    look(30000, 40000, 80000);
    EXPECT_INHABITED({30000, 80000}, {100001, SCAN_ID_MAX});
}
END_TEST

START_TEST(newest_ids_are_not_bare_where_there_was_no_place_to_look)
{
    probe(100000, 0, false, 0);
    claim();
    answer_seen(30000, 40000);
    PGresult *res = lock_row();
    set_bigint(res, 0, FULL, 1);
    answer(SECTION_NEWEST, res);
    ck_assert(take_locks());
    EXPECT_INHABITED({30000, SCAN_ID_MAX});
    finish_claim();
    claim();
    ck_assert_int_eq(ids_of(SECTION_NEWEST).hi, 100000);
    ck_assert_int_eq(ids_of(SECTION_OLDEST).lo, 50001);
}
END_TEST

START_TEST(nothing_is_known_of_the_newest_ids_below_one_that_is_new)
{
    probe(100000, 0, false, 0);
    look(30000, 120000, SCAN_ID_MIN);
    EXPECT_INHABITED({30000, SCAN_ID_MAX});
}
END_TEST

START_TEST(newest_ids_that_are_not_settled_are_not_bare)
{
    probe(1000, 1, false, 0);
    probe(40000, 1, false, 0);
    claim();
    ck_assert(!id_range_is_empty(plan.scan.newest));
    take_seen(5, 5);
    EXPECT_INHABITED({SCAN_ID_MIN, SCAN_ID_MAX});
}
END_TEST

START_TEST(probe_looks_up_to_what_is_bare_and_the_floor_rises_over_it)
{
    probe(100000, 0, false, 0);
    look(30000, 40000, 80000);
    ordering_per_key.probe(o, 0, arena, statements);
    ck_assert_int_eq(parameter(2, 1), 30000);
    ck_assert_int_eq(parameter(2, 2), 80000);
    floor_probed(2, 40000, false, 0); /* it is still there: nothing is passed */
    EXPECT_INHABITED({40000, 80000}, {100001, SCAN_ID_MAX});
    ordering_per_key.probe(o, 0, arena, statements);
    ck_assert_int_eq(parameter(2, 2), 80000);
    floor_probed(2, 0, false, 0);
    EXPECT_INHABITED({100001, SCAN_ID_MAX});
}
END_TEST

START_TEST(claim_that_sees_the_rest_gone_raises_the_floor_over_what_is_bare)
{
    probe(100000, 0, false, 0);
    look(30000, 40000, 80000);
    finish_claim();
    claim();
    ck_assert_int_eq(plan.scan.newest.hi, 80000);
    take_nothing(); /* of what a claim saw before nobody looks again */
    EXPECT_INHABITED({30000, 50000}, {100001, SCAN_ID_MAX});
}
END_TEST

START_TEST(what_was_bare_is_forgotten_when_somebody_has_put_in_an_old_id)
{
    probe(100000, 0, false, 0);
    look(30000, 40000, 80000);
    finish_claim();
    claim();
    PGresult *res = lock_row_of(15000, 15000);
    set_text(res, 0, LOW, "{{k,15000,15000}}");
    answer(SECTION_OLDEST, res);
    ck_assert(take_locks());
    EXPECT_INHABITED({15000, SCAN_ID_MAX});
}
END_TEST

START_TEST(what_was_bare_is_forgotten_when_an_event_is_seen_there)
{
    probe(100000, 0, false, 0);
    look(30000, 40000, 80000);
    finish_claim();
    claim();
    answer(SECTION_OLDEST, lock_row_of(40000, 90000));
    ck_assert(take_locks());
    EXPECT_INHABITED({30000, SCAN_ID_MAX});
}
END_TEST

START_TEST(short_stretch_is_noted_where_it_makes_another_longer)
{
    probe(100000, 0, false, 0);
    look(30000, 40000, 95000);
    EXPECT_INHABITED({30000, SCAN_ID_MAX});
    ordering_per_key.forget(o);
    probe(100000, 0, false, 0);
    look(30000, 40000, 80000);
    finish_claim();
    claim();
    ck_assert_int_eq(plan.scan.newest.hi, 80000);
    answer(SECTION_OLDEST, lock_row_of(50001, 50001));
    answer(SECTION_NEWEST, stopped_at(79000));
    ck_assert(take_locks());
    EXPECT_INHABITED({30000, 79000}, {100001, SCAN_ID_MAX});
}
END_TEST

START_TEST(what_was_bare_is_forgotten_with_everything)
{
    probe(100000, 0, false, 0);
    look(30000, 40000, 80000);
    ordering_per_key.forget(o);
    EXPECT_INHABITED({SCAN_ID_MIN, SCAN_ID_MAX});
}
END_TEST

START_TEST(what_is_bare_is_not_noted_where_a_filter_hides_some)
{
    ordering_per_key.close(o);
    struct ordering_options options = options_with(true, false);
    options.filter = true;
    o = ordering_per_key.open(&options, &err);
    probe(100000, 0, false, 0);
    look(30000, 40000, SCAN_ID_MIN);
    EXPECT_INHABITED({SCAN_ID_MIN, SCAN_ID_MAX});
}
END_TEST

/* ---- the parts by themselves ---- */

START_TEST(what_there_is_no_room_for_is_not_noted)
{
    struct horizon horizon = {.kind = FLOOR_EVENTS, .sees_all = true, .floor = 0};
    const struct claim_plan all = {.scan = {.settled = 10000000}};
    for (int64_t i = 1; i <= ID_RANGES_MAX + 5; i++)
        horizon_looked(&horizon, &all, (struct id_range){i * 100000, i * 100000 + 20000});
    struct id_ranges ids;
    horizon_inhabited(&horizon, &ids);
    ck_assert_uint_eq(ids.count, ID_RANGES_MAX);
    for (size_t i = 0; i + 1 < ids.count; i++)
        ck_assert_int_eq(ids.at[i].hi, ((int64_t)i + 1) * 100000 - 1);
    ck_assert_int_eq(ids.at[ID_RANGES_MAX - 1].lo, (ID_RANGES_MAX - 1) * 100000 + 20001);
    horizon_looked(&horizon, &all, (struct id_range){120001, 120001}); /* as a part of the first of them */
    horizon_inhabited(&horizon, &ids);
    ck_assert_uint_eq(ids.count, ID_RANGES_MAX);
    ck_assert_int_eq(ids.at[1].lo, 120002);
    horizon_looked(&horizon, &all, (struct id_range){-5, 99999}); /* up to it */
    horizon_inhabited(&horizon, &ids);
    ck_assert_uint_eq(ids.count, ID_RANGES_MAX - 1);
    ck_assert_int_eq(ids.at[0].lo, 120002);
}
END_TEST

START_TEST(no_id_is_below_the_least_or_above_the_greatest)
{
    const struct id_range all = {SCAN_ID_MIN, SCAN_ID_MAX};
    ck_assert(id_range_is_empty(id_range_below(all, SCAN_ID_MIN)));
    ck_assert(id_range_is_empty(id_range_above(all, SCAN_ID_MAX)));
    ck_assert_int_eq(id_range_below(all, 0).hi, -1);
    ck_assert_int_eq(id_range_above(all, 0).lo, 1);
    ck_assert(id_range_is_empty(id_range_below((struct id_range){5, 9}, 5)));
    ck_assert_int_eq(id_range_below((struct id_range){5, 9}, 20).hi, 9);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("per_key_bare");
    TCase *tcase = tcase_create("per_key_bare");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, all_ids_may_have_events_at_first);
    tcase_add_test(tcase, newest_ids_are_bare_above_the_greatest_that_a_claim_has_seen);
    tcase_add_test(tcase, newest_ids_are_all_bare_where_a_claim_has_seen_only_the_oldest);
    tcase_add_test(tcase, newest_ids_are_bare_only_where_a_claim_has_looked);
    tcase_add_test(tcase, newest_ids_are_not_bare_where_there_was_no_place_to_look);
    tcase_add_test(tcase, nothing_is_known_of_the_newest_ids_below_one_that_is_new);
    tcase_add_test(tcase, newest_ids_that_are_not_settled_are_not_bare);
    tcase_add_test(tcase, probe_looks_up_to_what_is_bare_and_the_floor_rises_over_it);
    tcase_add_test(tcase, claim_that_sees_the_rest_gone_raises_the_floor_over_what_is_bare);
    tcase_add_test(tcase, what_was_bare_is_forgotten_when_somebody_has_put_in_an_old_id);
    tcase_add_test(tcase, what_was_bare_is_forgotten_when_an_event_is_seen_there);
    tcase_add_test(tcase, short_stretch_is_noted_where_it_makes_another_longer);
    tcase_add_test(tcase, what_was_bare_is_forgotten_with_everything);
    tcase_add_test(tcase, what_is_bare_is_not_noted_where_a_filter_hides_some);
    tcase_add_test(tcase, what_there_is_no_room_for_is_not_noted);
    tcase_add_test(tcase, no_id_is_below_the_least_or_above_the_greatest);
    return run_suite(suite);
}
