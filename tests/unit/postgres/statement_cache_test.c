#include "relay/postgres/statement_cache.h"

#include "tests/support/run_suite.h"

#include <string.h>

static const char first[] = "select 1", second[] = "select 2", same_text[] = "select 1";

START_TEST(statement_is_known_by_its_address_until_it_is_forgotten)
{
    struct statement_cache cache = {0};
    ck_assert(!statement_cache_has(&cache, first));
    statement_cache_add(&cache, first);
    statement_cache_add(&cache, second);
    ck_assert(statement_cache_has(&cache, first) && statement_cache_has(&cache, second));
    ck_assert(!statement_cache_has(&cache, same_text));
    statement_cache_forget(&cache, first);
    ck_assert(!statement_cache_has(&cache, first) && statement_cache_has(&cache, second));
}
END_TEST

START_TEST(forgetting_what_is_not_there_changes_nothing)
{
    struct statement_cache cache = {0};
    statement_cache_add(&cache, first);
    statement_cache_forget(&cache, second);
    ck_assert_uint_eq(cache.count, 1);
    ck_assert(statement_cache_has(&cache, first));
}
END_TEST

START_TEST(cache_is_full_at_its_limit)
{
    static const char texts[STATEMENT_CACHE_MAX][2] = {""};
    struct statement_cache cache = {0};
    for (size_t i = 0; i < STATEMENT_CACHE_MAX; i++) {
        ck_assert(!statement_cache_is_full(&cache));
        statement_cache_add(&cache, texts[i]);
    }
    ck_assert(statement_cache_is_full(&cache));
    statement_cache_forget(&cache, texts[0]);
    ck_assert(!statement_cache_is_full(&cache));
}
END_TEST

START_TEST(name_is_the_same_for_the_same_text_only)
{
    char a[STATEMENT_NAME_SIZE], b[STATEMENT_NAME_SIZE], c[STATEMENT_NAME_SIZE];
    statement_cache_name(first, a);
    statement_cache_name(same_text, b);
    statement_cache_name(second, c);
    ck_assert_str_eq(a, b);
    ck_assert_str_ne(a, c);
    ck_assert_int_eq(strncmp(a, "pgcourier_", 10), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("statement_cache");
    TCase *tcase = tcase_create("statement_cache");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, statement_is_known_by_its_address_until_it_is_forgotten);
    tcase_add_test(tcase, forgetting_what_is_not_there_changes_nothing);
    tcase_add_test(tcase, cache_is_full_at_its_limit);
    tcase_add_test(tcase, name_is_the_same_for_the_same_text_only);
    return run_suite(suite);
}
