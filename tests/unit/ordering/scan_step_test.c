/* Positions, one step at a time. */
#include "ordering/scan.h"

#include "relay/base/backoff.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

START_TEST(what_was_given_back_is_looked_at_although_new_work_never_ends)
{
    struct scan scan;
    struct scan_plan plan;
    scan_init(&scan);
    struct scan_horizon horizon = {.first = 1, .drawn = 1000000};
    scan_horizon(&scan, &horizon);
    scan.gaps.at[0] = (struct id_range){500000, 1000000};
    instant_us now = SECOND_US, limit = now + 3 * SECOND_US;
    scan_again(&scan, (struct id_range){5, 6}, now);
    do {
        ck_assert_int_lt(now += 10 * MS_US, limit);
        scan_next(&scan, now, &plan);
        struct scan_report report = {
            .newest_left = plan.newest, .oldest_left = {1, 0}, .seen_max = 1000000, .missed = {1, 0}, .found = true};
        if (plan.oldest.lo > 6)
            report.oldest_left = plan.oldest;
        scan_seen(&scan, &plan, &report, MS_US, now);
    } while (plan.oldest.lo > 5);
}
END_TEST

static bool is_apart(struct id_range a, struct id_range b)
{
    return a.hi < b.lo || b.hi < a.lo;
}

START_TEST(claims_beside_each_other_look_at_ids_of_their_own)
{
    struct scan scan;
    struct scan_plan plan, beside;
    scan_init(&scan);
    struct scan_horizon horizon = {.first = 1, .drawn = 90000};
    scan_horizon(&scan, &horizon);
    scan_next(&scan, SECOND_US, &plan);
    ck_assert(!plan.more);
    struct scan_report report = {.newest_left = {plan.newest.lo, plan.newest.hi - 1000},
                                 .oldest_left = {501, plan.oldest.hi},
                                 .seen_max = 90000,
                                 .missed = {1, 0},
                                 .found = true};
    scan_seen(&scan, &plan, &report, MS_US, SECOND_US);
    scan_next(&scan, SECOND_US, &plan);
    scan_next(&scan, SECOND_US, &beside);
    ck_assert(plan.more && beside.more);
    ck_assert_int_eq(plan.newest.hi, 89000);
    ck_assert_int_eq(plan.newest.lo, 85000); /* four times what the first one used */
    ck_assert_int_eq(plan.oldest.lo, 501);
    ck_assert_int_eq(beside.newest.hi, 84999);
    ck_assert_int_eq(beside.oldest.lo, plan.oldest.hi + 1);
    ck_assert(!beside.sweeping && is_apart(beside.oldest, beside.newest));
}
END_TEST

START_TEST(stretches_grow_again_when_they_are_used_up)
{
    struct scan scan;
    struct scan_plan plan;
    scan_init(&scan);
    struct scan_horizon horizon = {.first = 1, .drawn = 1000000};
    scan_horizon(&scan, &horizon);
    scan.span = 2000;
    for (int i = 0; i < 6; i++) {
        scan_next(&scan, SECOND_US, &plan);
        ck_assert_int_eq(plan.newest.hi - plan.newest.lo, 2000 << i);
        struct scan_report report = {
            .newest_left = {1, 0}, .oldest_left = {1, 0}, .seen_max = 1000000, .missed = {1, 0}, .found = true};
        scan_seen(&scan, &plan, &report, MS_US, SECOND_US);
    }
}
END_TEST

START_TEST(ids_far_apart_are_come_to_although_every_third_claim_is_slow)
{
    struct scan scan;
    struct scan_plan plan;
    scan_init(&scan);
    struct scan_horizon horizon = {.first = 1, .drawn = INT64_C(1) << 62};
    scan_horizon(&scan, &horizon);
    struct scan_report nothing = {
        .newest_left = {1, 0}, .oldest_left = {1, 0}, .seen_max = SCAN_ID_MIN, .missed = {1, 0}};
    int claims = 0;
    for (; scan.gaps.count > 0; claims++) {
        ck_assert_int_lt(claims, 200);
        scan_next(&scan, SECOND_US, &plan);
        scan_seen(&scan, &plan, &nothing, claims % 3 == 2 ? 100 * MS_US : MS_US, SECOND_US);
    }
    ck_assert_int_gt(claims, 10);
}
END_TEST

START_TEST(stretch_that_is_slow_to_walk_becomes_smaller_than_it_was)
{
    struct scan scan;
    struct scan_plan plan;
    scan_init(&scan);
    struct scan_horizon horizon = {.first = 1, .drawn = 1000000};
    scan_horizon(&scan, &horizon);
    scan.span = INT64_C(1) << 50;
    scan.quickest_us = MS_US;
    scan_next(&scan, SECOND_US, &plan);
    struct scan_report nothing = {
        .newest_left = {1, 0}, .oldest_left = {1, 0}, .seen_max = SCAN_ID_MIN, .missed = {1, 0}};
    scan_seen(&scan, &plan, &nothing, SECOND_US, SECOND_US);
    ck_assert_int_lt(scan.span, 500000);
    for (int i = 0; i < 10; i++) {
        scan_failed(&scan, &plan); /* it is to be walked again */
        scan_next(&scan, SECOND_US, &plan);
        scan_seen(&scan, &plan, &nothing, SECOND_US, SECOND_US);
    }
    ck_assert_int_eq(scan.span, 2000);
}
END_TEST

/* ---- horizons, one by one ---- */

static void horizon(struct scan *scan, int64_t drawn, const uint64_t *holders, size_t count)
{
    struct scan_horizon seen = {.first = 1, .drawn = drawn, .holders = holders, .holder_count = count};
    scan_horizon(scan, &seen);
}

START_TEST(ids_settle_when_everybody_who_drew_some_has_ended)
{
    struct scan scan;
    scan_init(&scan);
    ck_assert(scan_unsettled(&scan));
    horizon(&scan, 100, (const uint64_t[]){1, 2}, 2);
    ck_assert_int_eq(scan.settled, SCAN_ID_MIN);
    horizon(&scan, 120, (const uint64_t[]){2, 3}, 2); /* 3 came later */
    ck_assert_int_eq(scan.settled, SCAN_ID_MIN);
    horizon(&scan, 130, (const uint64_t[]){3, 4}, 2);
    ck_assert_int_eq(scan.settled, 100);
    horizon(&scan, 140, NULL, 0);
    ck_assert_int_eq(scan.settled, 140);
    ck_assert(!scan_unsettled(&scan));
}
END_TEST

START_TEST(ids_never_settle_by_a_list_that_was_cut)
{
    static uint64_t many[SCAN_HOLDERS_MAX + 1];
    for (size_t i = 0; i <= SCAN_HOLDERS_MAX; i++)
        many[i] = i + 1;
    struct scan scan;
    scan_init(&scan);
    horizon(&scan, 100, many, SCAN_HOLDERS_MAX + 1);
    horizon(&scan, 200, (const uint64_t[]){SCAN_HOLDERS_MAX + 1}, 1);
    ck_assert_int_eq(scan.settled, SCAN_ID_MIN);
    horizon(&scan, 300, (const uint64_t[]){7}, 1);
    ck_assert_int_eq(scan.settled, 200);
}
END_TEST

START_TEST(sequence_that_was_set_back_starts_anew)
{
    struct scan scan;
    scan_init(&scan);
    horizon(&scan, 5000, NULL, 0);
    horizon(&scan, 10, (const uint64_t[]){1}, 1);
    struct scan_plan plan;
    scan_next(&scan, 0, &plan);
    ck_assert_int_lt(plan.fresh_above, 1);
    ck_assert_int_lt(scan.settled, 1);
}
END_TEST

START_TEST(settled_ids_are_looked_at_once_more)
{
    struct scan scan;
    struct scan_plan plan;
    scan_init(&scan);
    horizon(&scan, 100, NULL, 0);
    scan_next(&scan, 0, &plan);
    ck_assert_int_eq(plan.fresh_above, 100);
    ck_assert_int_le(plan.oldest.lo, 1);
    ck_assert_int_ge(plan.newest.hi, 100);
    ck_assert_int_eq(plan.newest.lo, plan.oldest.hi + 1);
}
END_TEST

START_TEST(long_transaction_does_not_make_every_claim_walk_all_that_came_after_it)
{
    struct scan scan;
    struct scan_plan plan;
    struct scan_report report = {.newest_left = {1, 0}, .oldest_left = {1, 0}, .missed = {1, 0}};
    scan_init(&scan);
    horizon(&scan, 100, (const uint64_t[]){1}, 1);
    horizon(&scan, 1000000, (const uint64_t[]){1}, 1);
    ck_assert_int_eq(scan.settled, SCAN_ID_MIN);
    for (int i = 0; i < 20; i++) {
        scan_next(&scan, 0, &plan);
        report.seen_max = 1000000;
        scan_seen(&scan, &plan, &report, MS_US, 0);
    }
    ck_assert_int_ge(plan.fresh_above, 1000000 - 5000);
    horizon(&scan, 1000000, NULL, 0); /* and when it ends, all of it is looked at again */
    scan_next(&scan, 0, &plan);
    ck_assert_int_le(plan.oldest.lo, 100);
}
END_TEST

/* Until nothing is left to look at; returns the claims. */
static int look_everywhere(struct scan *scan)
{
    struct scan_plan plan;
    struct scan_report nothing = {
        .newest_left = {1, 0}, .oldest_left = {1, 0}, .seen_max = SCAN_ID_MIN, .missed = {1, 0}};
    int claims = 0;
    for (; scan->gaps.count > 0; claims++) {
        scan_next(scan, 0, &plan);
        scan_seen(scan, &plan, &nothing, MS_US, 0);
    }
    return claims;
}

START_TEST(ids_that_were_passed_are_looked_at_again_when_their_transaction_ends)
{
    struct scan scan;
    scan_init(&scan);
    horizon(&scan, 100, (const uint64_t[]){1}, 1);
    horizon(&scan, 200, (const uint64_t[]){1}, 1);
    horizon(&scan, 40000, (const uint64_t[]){1, 2}, 2);
    look_everywhere(&scan);
    int64_t passed = scan_fresh_above(&scan);
    ck_assert_int_ge(passed, 35000);
    horizon(&scan, 40100, (const uint64_t[]){2, 1}, 2);
    ck_assert(!scan_pending(&scan, 0));
    horizon(&scan, 40200, (const uint64_t[]){1}, 1); /* though the first one has not ended */
    ck_assert_uint_eq(scan.gaps.count, 1);
    ck_assert_int_eq(scan.gaps.at[0].lo, 201);
    ck_assert_int_eq(scan.gaps.at[0].hi, passed);
    look_everywhere(&scan);
    horizon(&scan, 40300, (const uint64_t[]){1, 3}, 2);
    horizon(&scan, 40400, (const uint64_t[]){1}, 1);
    ck_assert_msg(!scan_pending(&scan, 0), "a short transaction costs no walk");
    ck_assert_int_eq(scan.settled, SCAN_ID_MIN);
}
END_TEST

START_TEST(ids_of_whom_a_cut_list_does_not_name_are_looked_at_again)
{
    static uint64_t many[SCAN_HOLDERS_MAX + 1];
    for (size_t i = 0; i <= SCAN_HOLDERS_MAX; i++)
        many[i] = i + 1;
    struct scan scan;
    scan_init(&scan);
    horizon(&scan, 100, (const uint64_t[]){1}, 1);
    horizon(&scan, 30000, many, SCAN_HOLDERS_MAX + 1);
    horizon(&scan, 60000, (const uint64_t[]){1, 2}, 2);
    look_everywhere(&scan);
    horizon(&scan, 60000, (const uint64_t[]){1}, 1);
    ck_assert_int_eq(scan.gaps.at[0].lo, 101);
}
END_TEST

START_TEST(id_of_ones_own_far_above_the_others_blinds_no_claim)
{
    struct scan scan;
    struct scan_plan plan;
    struct scan_report far = {
        .newest_left = {1, 0}, .oldest_left = {1, 0}, .seen_max = INT64_C(1) << 60, .missed = {1, 0}, .found = true};
    scan_init(&scan);
    for (int64_t drawn = 100; drawn < 1000; drawn += 100) {
        horizon(&scan, drawn, (const uint64_t[]){1}, 1);
        scan_next(&scan, 0, &plan);
        ck_assert_int_lt(plan.fresh_above, 100);
        scan_seen(&scan, &plan, &far, MS_US, 0);
    }
    horizon(&scan, 1000, NULL, 0);
    horizon(&scan, 1000, NULL, 0);
    ck_assert_msg(!scan_unsettled(&scan), "nobody is asked for what nobody draws");
}
END_TEST

static bool has_gap_at(const struct scan *scan, int64_t id)
{
    for (size_t i = 0; i < scan->gaps.count; i++)
        if (scan->gaps.at[i].lo <= id && id <= scan->gaps.at[i].hi)
            return true;
    return false;
}

START_TEST(what_is_missed_at_both_ends_is_not_looked_for_between_them)
{
    struct scan scan;
    struct scan_plan plan;
    struct scan_report report = {
        .newest_left = {1, 0}, .oldest_left = {1, 0}, .seen_max = 1000000, .missed = {5, 999999}};
    scan_init(&scan);
    horizon(&scan, 1000000, NULL, 0);
    scan_next(&scan, 0, &plan);
    scan_seen(&scan, &plan, &report, MS_US, 0);
    look_everywhere(&scan);
    scan_next(&scan, SECOND_US, &plan);
    ck_assert_int_eq(plan.oldest.lo, 5);
    ck_assert_int_eq(plan.newest.hi, 999999);
    ck_assert(plan.oldest.hi < 500000 && plan.newest.lo > 500000 && !has_gap_at(&scan, 500000));
    report.missed = (struct id_range){500000, 999999}; /* seen where nobody said that he would look */
    scan_seen(&scan, &plan, &report, MS_US, SECOND_US);
    scan_next(&scan, 10 * SECOND_US, &plan);
    ck_assert(plan.oldest.lo <= 500000 && plan.newest.hi == 999999);
}
END_TEST

/* Of the ids up to 90000. */
static void plan_of_all(struct scan *scan, struct scan_plan *ret)
{
    scan_init(scan);
    horizon(scan, 90000, NULL, 0);
    scan_next(scan, SECOND_US, ret);
}

/* Millions of dead rows may lie beside it. */
START_TEST(what_a_claim_saw_and_did_not_get_is_all_that_is_looked_at_again)
{
    struct scan scan;
    struct scan_plan plan;
    plan_of_all(&scan, &plan);
    ck_assert(plan.oldest.lo <= 1 && plan.newest.hi == 90000);
    struct scan_report report = scan_saw_nothing;
    report.seen_min = 30000;
    report.seen_max = 60000;
    report.found = true;
    scan_seen(&scan, &plan, &report, MS_US, SECOND_US);
    ck_assert(!has_gap_at(&scan, 30000));
    scan_truncated(&scan, &plan, &report, SECOND_US);
    ck_assert(has_gap_at(&scan, 30000) && has_gap_at(&scan, 60000));
    ck_assert(!has_gap_at(&scan, 29999) && !has_gap_at(&scan, 60001));
    report.seen_max = 90500; /* some came since */
    scan_truncated(&scan, &plan, &report, SECOND_US);
    ck_assert(scan.again.count == 1 && scan.again.at[0].lo == 90001 && scan.again.at[0].hi == 90500);
}
END_TEST

START_TEST(where_nobody_knows_what_it_saw_a_claim_looks_again_everywhere)
{
    struct scan scan;
    struct scan_plan plan;
    plan_of_all(&scan, &plan);
    struct scan_report report = scan_saw_nothing;
    report.seen_max = 60000; /* as of events without an order, whose least id is not told */
    scan_truncated(&scan, &plan, &report, SECOND_US);
    ck_assert(has_gap_at(&scan, 1) && has_gap_at(&scan, 60000) && !has_gap_at(&scan, 60001));
    report.seen_max = SCAN_ID_MIN;
    scan_truncated(&scan, &plan, &report, SECOND_US);
    ck_assert(has_gap_at(&scan, 1) && has_gap_at(&scan, 90000));
}
END_TEST

START_TEST(slow_sweep_goes_on_beside_work_that_never_ends)
{
    struct scan scan;
    struct scan_plan plan;
    scan_init(&scan);
    horizon(&scan, 1000000, NULL, 0);
    int64_t swept_to = SCAN_ID_MIN;
    for (instant_us now = 1; now < 60 * SECOND_US; now += 10 * MS_US) {
        scan_next(&scan, now, &plan);
        struct scan_report report = {.newest_left = plan.newest,
                                     .oldest_left = plan.sweeping ? (struct id_range){1, 0} : plan.oldest,
                                     .seen_max = 1000000,
                                     .missed = {1, 0},
                                     .found = true};
        ck_assert(plan.more || !plan.sweeping);
        if (plan.sweeping && plan.oldest.hi > swept_to)
            swept_to = plan.oldest.hi;
        scan_seen(&scan, &plan, &report, MS_US, now);
        for (int64_t id = 1; id <= 1000000; id += 99999)
            ck_assert_msg(has_gap_at(&scan, id), "%lld is forgotten", (long long)id);
    }
    ck_assert_int_ge(swept_to, 100000);
}
END_TEST

START_TEST(ends_of_the_id_range_do_not_overflow)
{
    struct scan scan;
    scan_init(&scan);
    struct scan_horizon far = {.first = SCAN_ID_MIN, .drawn = SCAN_ID_MAX};
    scan_horizon(&scan, &far);
    instant_us now = 0;
    for (int i = 0; i < 2000; i++, now += SECOND_US) {
        struct scan_plan plan;
        scan_next(&scan, now, &plan);
        struct scan_report report = {
            .newest_left = {1, 0}, .oldest_left = {1, 0}, .seen_max = SCAN_ID_MAX, .missed = {1, 0}};
        if (i % 3 == 0) {
            report.missed = (struct id_range){SCAN_ID_MIN, SCAN_ID_MIN};
            report.oldest_left = plan.oldest;
        }
        if (i % 5 == 0)
            report.missed = (struct id_range){SCAN_ID_MAX, SCAN_ID_MAX};
        if (i % 7 == 0)
            scan_failed(&scan, &plan);
        else
            scan_seen(&scan, &plan, &report, 0, now);
        scan_again(&scan, (struct id_range){SCAN_ID_MIN, SCAN_ID_MAX}, now + i % 4 * SECOND_US);
    }
    ck_assert_int_eq(scan.settled, SCAN_ID_MAX);
}
END_TEST

START_TEST(more_gaps_than_fit_are_merged_and_none_is_forgotten)
{
    struct scan scan;
    scan_init(&scan);
    horizon(&scan, 100000, NULL, 0);
    struct scan_plan all = {.oldest = {1, 0}, .newest = {1, 0}};
    scan.gaps.count = 0;
    struct rng rng = {.state = 11};
    for (int i = 0; i < 3 * ID_RANGES_MAX; i++) {
        int64_t at = (int64_t)(rng_next(&rng) % 1000) * 100;
        all.oldest = (struct id_range){at, at};
        scan_failed(&scan, &all);
        bool covered = false;
        for (size_t g = 0; g < scan.gaps.count; g++)
            covered = covered || (scan.gaps.at[g].lo <= at && at <= scan.gaps.at[g].hi);
        ck_assert(covered);
        ck_assert_uint_le(scan.gaps.count, ID_RANGES_MAX);
        for (size_t g = 1; g < scan.gaps.count; g++)
            ck_assert_int_lt(scan.gaps.at[g - 1].hi, scan.gaps.at[g].lo);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("scan_step");
    TCase *tcase = tcase_create("scan_step");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, what_was_given_back_is_looked_at_although_new_work_never_ends);
    tcase_add_test(tcase, claims_beside_each_other_look_at_ids_of_their_own);
    tcase_add_test(tcase, stretches_grow_again_when_they_are_used_up);
    tcase_add_test(tcase, ids_far_apart_are_come_to_although_every_third_claim_is_slow);
    tcase_add_test(tcase, stretch_that_is_slow_to_walk_becomes_smaller_than_it_was);
    tcase_add_test(tcase, ids_settle_when_everybody_who_drew_some_has_ended);
    tcase_add_test(tcase, ids_never_settle_by_a_list_that_was_cut);
    tcase_add_test(tcase, sequence_that_was_set_back_starts_anew);
    tcase_add_test(tcase, settled_ids_are_looked_at_once_more);
    tcase_add_test(tcase, long_transaction_does_not_make_every_claim_walk_all_that_came_after_it);
    tcase_add_test(tcase, ids_that_were_passed_are_looked_at_again_when_their_transaction_ends);
    tcase_add_test(tcase, ids_of_whom_a_cut_list_does_not_name_are_looked_at_again);
    tcase_add_test(tcase, id_of_ones_own_far_above_the_others_blinds_no_claim);
    tcase_add_test(tcase, what_is_missed_at_both_ends_is_not_looked_for_between_them);
    tcase_add_test(tcase, what_a_claim_saw_and_did_not_get_is_all_that_is_looked_at_again);
    tcase_add_test(tcase, where_nobody_knows_what_it_saw_a_claim_looks_again_everywhere);
    tcase_add_test(tcase, slow_sweep_goes_on_beside_work_that_never_ends);
    tcase_add_test(tcase, ends_of_the_id_range_do_not_overflow);
    tcase_add_test(tcase, more_gaps_than_fit_are_merged_and_none_is_forgotten);
    return run_suite(suite);
}
