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

int main(void)
{
    Suite *suite = suite_create("ordering");
    TCase *tcase = tcase_create("ordering");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, strategy_is_found_by_its_name);
    return run_suite(suite);
}
