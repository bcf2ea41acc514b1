/* Keys that have few events each are read by one walk over an index. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/per_key_stage.h"

#define KEYS ((int64_t)10) /* claim() asks for so many */

static bool reads_few(void)
{
    bool few = strstr(statements[reading()].sql, "apart as materialized") != NULL;
    ck_assert(few == plan.few);
    return few;
}

/* The claim under way finds `keys` keys and `rows` events. */
static void find(int64_t keys, int64_t rows)
{
    PGresult *res = rows > 0 ? lock_row_of(1, rows) : lock_row();
    set_bigint(res, 0, LOCKED, keys);
    set_bigint(res, 0, TRIED, keys);
    answer(SECTION_FRESH, res);
    ck_assert(take_locks());
    for (int64_t id = 1; id <= rows; id++) {
        event_count = 0;
        ck_assert(take_row(event_row(id, "k")));
    }
    finish_claim();
}

START_TEST(keys_of_few_events_are_read_by_one_walk)
{
    claim();
    ck_assert(!reads_few()); /* nothing is known yet */
    find(KEYS, 2 * KEYS);
    claim();
    ck_assert(reads_few());
    ck_assert_int_eq(statements[reading()].count, 6);
    ck_assert_int_eq(read_parameter(3), 4);
    ck_assert_int_le(read_parameter(4), 5 * KEYS);
    find(KEYS, 2 * KEYS + 1);
    claim();
    ck_assert(!reads_few());
}
END_TEST

START_TEST(claim_that_finds_nothing_says_nothing_of_keys)
{
    claim();
    find(0, 0);
    claim();
    ck_assert(!reads_few());
    find(KEYS, KEYS);
    claim();
    ck_assert(reads_few());
    find(0, 0);
    claim();
    ck_assert(reads_few());
}
END_TEST

START_TEST(keys_that_are_known_to_have_more_are_read_one_by_one)
{
    const struct span follow[] = {SPAN_LITERAL("f")};
    claim();
    find(KEYS, KEYS);
    struct claim_request request = {
        .max_keys = KEYS, .events_per_key = 4, .follow_keys = follow, .follow_key_count = 1};
    claim_for(&request);
    ck_assert(!reads_few());
    finish_claim();
    claim();
    ck_assert(reads_few());
}
END_TEST

START_TEST(walk_that_was_cut_short_is_not_tried_again_soon)
{
    claim();
    find(KEYS, KEYS);
    claim();
    ck_assert(reads_few());
    int64_t limit = read_parameter(4);
    find(KEYS, limit);
    ck_assert(plan.truncated);
    int claims = 0;
    for (claim(); !reads_few(); claim()) {
        ck_assert_int_gt(read_parameter(4),
                         limit); /* it is no reason to ask for more rows than before, nor for fewer */
        find(KEYS, KEYS);
        ck_assert_int_lt(++claims, 1000);
    }
    ck_assert_int_gt(claims, 10);
}
END_TEST

START_TEST(claim_with_events_that_did_not_fit_is_followed_by_one_in_the_order_of_places)
{
    claim();
    find(KEYS, KEYS);
    claim();
    ck_assert(reads_few());
    plan.spilled = true;
    finish_claim();
    claim();
    ck_assert(!reads_few());
}
END_TEST

START_TEST(without_an_index_on_key_and_id_there_is_no_walk)
{
    ordering_per_key.close(o);
    struct ordering_options options = {.queue = "orders", .variables = variables, .extra_columns = 2};
    o = ordering_per_key.open(&options, &err);
    claim();
    find(KEYS, KEYS);
    claim();
    ck_assert(!reads_few());
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("per_key_few");
    TCase *tcase = tcase_create("per_key_few");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, keys_of_few_events_are_read_by_one_walk);
    tcase_add_test(tcase, claim_that_finds_nothing_says_nothing_of_keys);
    tcase_add_test(tcase, keys_that_are_known_to_have_more_are_read_one_by_one);
    tcase_add_test(tcase, walk_that_was_cut_short_is_not_tried_again_soon);
    tcase_add_test(tcase, claim_with_events_that_did_not_fit_is_followed_by_one_in_the_order_of_places);
    tcase_add_test(tcase, without_an_index_on_key_and_id_there_is_no_walk);
    return run_suite(suite);
}
