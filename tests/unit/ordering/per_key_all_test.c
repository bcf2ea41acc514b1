/* While as many rows as keys are enough, a claim locks whatever it finds. */
#include "ordering/claim_rows.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/per_key_stage.h"

#define KEYS ((int64_t)10) /* claim() asks for so many */

static bool locks_all(void)
{
    bool all = strstr(statements[0].sql, "room as") != NULL;
    ck_assert(all == plan.all);
    ck_assert_int_eq(statements[0].count, all ? 16 : 19);
    return all;
}

static bool locks_all_for(const struct claim_request *request)
{
    ordering_per_key.claim(o, request, 0, arena, statements, &plan);
    bool all = locks_all();
    ordering_per_key.claim_failed(o, &plan);
    return all;
}

/* What the claim under way returned was so many rows, of keys that were too few. */
static void find(int64_t rows, bool thin)
{
    PGresult *res = lock_row(900);
    set_bigint(res, 0, THIN, thin);
    ck_assert(take_result(0, res));
    plan.rows = rows;
    finish_claim();
}

START_TEST(as_many_rows_are_looked_at_as_keys_are_wanted)
{
    const struct span follow[] = {SPAN_LITERAL("f")};
    probe(1000, 0, false, 0);
    struct claim_request request = {
        .max_keys = KEYS, .events_per_key = 4, .follow_keys = follow, .follow_key_count = 1};
    ordering_per_key.claim(o, &request, 0, arena, statements, &plan);
    ck_assert(locks_all());
    ck_assert_int_eq(parameter(0, 1), 1000);
    ck_assert_int_eq(parameter(0, 2), parameter(0, 5) + 1); /* both ends, with a share of 20 for the oldest */
    ck_assert_int_eq(parameter(0, 3), 1000);
    ck_assert_int_eq(parameter(0, 6), KEYS * 80 / 100);
    ck_assert_int_eq(parameter(0, 7), KEYS);
    ck_assert_int_eq(parameter(0, 8), KEYS * 20 / 100);
    ck_assert_int_eq(statements[0].formats[8], 1);
    ck_assert_str_eq(statements[0].values[9], "orders");
    ck_assert_int_eq(parameter(0, 11), 7);
    find(1, false);
    claim();
    ck_assert(locks_all());
    ck_assert_int_eq(parameter(0, 6), KEYS); /* what is new is all that there is to look at */
    ck_assert_int_eq(parameter(0, 8), KEYS);
}
END_TEST

static void open_with_share(int64_t share)
{
    ordering_per_key.close(o);
    struct ordering_options options = {
        .queue = "orders", .variables = variables, .extra_columns = 2, .sequence = true, .oldest_share = share};
    o = ordering_per_key.open(&options, &err);
    probe(1000, 0, false, 0);
    claim();
    ck_assert(locks_all());
}

START_TEST(rows_that_the_oldest_end_has_no_ids_for_go_to_the_newest)
{
    static const struct {
        struct id_range newest, oldest;
        int64_t newest_rows, oldest_rows;
        bool both;
    } cases[] = {{{500, 999}, {1, 400}, 80, 20, true},
                 {{500, 999}, {1, 20}, 80, 20, true},
                 {{500, 999}, {1, 19}, 81, 19, true},
                 {{500, 999}, {7, 7}, 99, 1, true},
                 {{500, 500}, {1, 400}, 80, 20, true},
                 {{500, 999}, {SCAN_ID_MIN, 400}, 80, 20, true},
                 {{500, 999}, {SCAN_ID_MAX, SCAN_ID_MAX}, 80, 20, true},
                 {{500, 999}, {1, 0}, 100, 100, false},
                 {{1, 0}, {1, 400}, 100, 100, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct scan_plan scan = {.newest = cases[i].newest, .oldest = cases[i].oldest};
        int64_t newest, oldest;
        ck_assert(claim_rows_split(&scan, 100, 20, &newest, &oldest) == cases[i].both);
        ck_assert_int_eq(newest, cases[i].newest_rows);
        ck_assert_int_eq(oldest, cases[i].oldest_rows);
    }
}
END_TEST

START_TEST(each_end_has_one_row_at_least)
{
    open_with_share(0);
    ck_assert_int_eq(parameter(0, 6), KEYS - 1);
    ck_assert_int_eq(parameter(0, 8), 1);
    open_with_share(100);
    ck_assert_int_eq(parameter(0, 6), 1);
    ck_assert_int_eq(parameter(0, 8), KEYS - 1);
}
END_TEST

START_TEST(claim_that_must_not_lock_everything_chooses)
{
    const struct span key[] = {SPAN_LITERAL("b")};
    const int64_t id[] = {3};
    const struct claim_request plain = {.max_keys = KEYS, .events_per_key = 4};
    ck_assert(locks_all_for(&plain));
    struct claim_request request = plain;
    request.behind = true;
    ck_assert(!locks_all_for(&request));
    request = plain;
    request.max_keys = 1;
    ck_assert(!locks_all_for(&request));
    request = plain;
    request.busy_keys = key;
    request.busy_key_count = 1;
    ck_assert(!locks_all_for(&request));
    request = plain;
    request.busy_keyless_ids = id;
    request.busy_keyless_count = 1;
    ck_assert(!locks_all_for(&request));
    ck_assert(locks_all_for(&plain));
}
END_TEST

START_TEST(few_that_are_busy_are_left_out_by_name)
{
    const struct span keys[] = {SPAN_LITERAL("b"), SPAN_LITERAL("c")};
    const int64_t id[] = {3};
    struct claim_request request = {.max_keys = 32,
                                    .events_per_key = 4,
                                    .busy_keys = keys,
                                    .busy_key_count = 1,
                                    .busy_keyless_ids = id,
                                    .busy_keyless_count = 1};
    ck_assert(locks_all_for(&request));
    struct statement names = statement_of("select");
    statement_add_texts(&names, arena, keys, 1);
    statement_add_ids(&names, arena, id, 1);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(statements[0].lengths[14 + i], names.lengths[i]);
        ck_assert_mem_eq(statements[0].values[14 + i], names.values[i], (size_t)names.lengths[i]);
    }
    request.busy_key_count = 2;
    ck_assert(!locks_all_for(&request));
}
END_TEST

START_TEST(claim_chooses_while_rows_have_too_few_keys)
{
    claim();
    ck_assert(locks_all());
    find(3, true);
    int claims = 0;
    for (claim(); !locks_all(); claim()) {
        ck_assert_int_gt(parameter(0, 6), KEYS);
        find(3, false);
        ck_assert_int_lt(++claims, 100);
    }
    ck_assert_int_gt(claims, 3);
    for (int i = 0; i < 10; i++, claim())
        find(3, true); /* as many rows as it ever looks at */
    for (claims = 0; !locks_all(); claims++, claim())
        find(3, false);
    ck_assert_int_lt(claims, 12); /* a claim that chooses takes twice as long */
}
END_TEST

START_TEST(after_a_claim_of_which_not_all_was_read_the_order_of_keys_is_fair)
{
    claim();
    ck_assert(locks_all());
    find(parameter(1, 4), false);
    ck_assert(plan.truncated);
    int claims = 0;
    for (claim(); !locks_all(); claim()) {
        find(3, false);
        ck_assert_int_lt(++claims, 10); /* it may only have been the first */
    }
    ck_assert_int_gt(claims, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("per_key_all");
    TCase *tcase = tcase_create("per_key_all");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, as_many_rows_are_looked_at_as_keys_are_wanted);
    tcase_add_test(tcase, rows_that_the_oldest_end_has_no_ids_for_go_to_the_newest);
    tcase_add_test(tcase, each_end_has_one_row_at_least);
    tcase_add_test(tcase, claim_that_must_not_lock_everything_chooses);
    tcase_add_test(tcase, few_that_are_busy_are_left_out_by_name);
    tcase_add_test(tcase, claim_chooses_while_rows_have_too_few_keys);
    tcase_add_test(tcase, after_a_claim_of_which_not_all_was_read_the_order_of_keys_is_fair);
    return run_suite(suite);
}
