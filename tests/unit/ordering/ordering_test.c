#include "ordering/ordering.h"

#include "tests/support/run_suite.h"

START_TEST(strategy_is_found_by_its_name)
{
    ck_assert_ptr_eq(ordering_type_find("per_key"), &ordering_per_key);
    ck_assert_ptr_eq(ordering_type_find("lease"), &ordering_per_key);
    ck_assert_ptr_eq(ordering_type_find("unordered"), &ordering_unordered);
    ck_assert_ptr_null(ordering_type_find("per_ke"));
    ck_assert_ptr_null(ordering_type_find(""));
}
END_TEST

static const struct ordering_type *const types[] = {&ordering_per_key, &ordering_unordered};

START_TEST(more_columns_than_a_row_is_read_with_are_refused)
{
    const struct ordering_options options = {.queue = "q", .extra_columns = 65};
    struct error err = {0};
    ck_assert_ptr_null(types[_i]->open(&options, &err));
    ck_assert_int_eq(err.kind, ERROR_INTERNAL);
    ck_assert_ptr_nonnull(strstr(err.text, "at most 64"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ordering");
    TCase *tcase = tcase_create("ordering");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, strategy_is_found_by_its_name);
    tcase_add_loop_test(tcase, more_columns_than_a_row_is_read_with_are_refused, 0, 2);
    return run_suite(suite);
}
