#include "ordering/array_text.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

static struct arena *arena;

static void set_up(void)
{
    arena = arena_new();
}

static void tear_down(void)
{
    arena_free(arena);
}

static void assert_elements(const char *text, const char *const *expected)
{
    struct span rest = span_of(text), element;
    for (; array_text_next(&rest, arena, &element); expected++) {
        ck_assert_msg(*expected != NULL, "%s has more elements than expected", text);
        ck_assert_msg(span_equal(element, span_of(*expected)), "%s: %.*s is not %s", text, (int)element.size,
                      element.data, *expected);
    }
    ck_assert_msg(*expected == NULL, "%s has no %s", text, *expected);
}

START_TEST(elements_come_one_by_one)
{
    assert_elements("{}", (const char *[]){NULL});
    assert_elements("{7}", (const char *[]){"7", NULL});
    assert_elements("{-1,22,333}", (const char *[]){"-1", "22", "333", NULL});
}
END_TEST

START_TEST(quotes_and_backslashes_are_taken_off)
{
    assert_elements("{\"\",\"a b\",c,\"{}\",\"x,y\"}", (const char *[]){"", "a b", "c", "{}", "x,y", NULL});
    assert_elements("{\"say \\\"hi\\\"\",\"back\\\\slash\",\"NULL\"}",
                    (const char *[]){"say \"hi\"", "back\\slash", "NULL", NULL});
}
END_TEST

START_TEST(elements_of_two_dimensions_come_one_after_the_other)
{
    assert_elements("{{a,1,2},{b,3,4}}", (const char *[]){"a", "1", "2", "b", "3", "4", NULL});
    assert_elements("{{\"},{\"},{\"\"},{\"{\"}}", (const char *[]){"},{", "", "{", NULL});
    assert_elements("{{}}", (const char *[]){NULL});
}
END_TEST

START_TEST(text_that_is_cut_off_ends)
{
    assert_elements("", (const char *[]){NULL});
    assert_elements("{", (const char *[]){NULL});
    assert_elements("{a", (const char *[]){"a", NULL});
    assert_elements("{\"a", (const char *[]){"a", NULL});
    assert_elements("{\"a\\", (const char *[]){"a\\", NULL});
    assert_elements("{a,", (const char *[]){"a", NULL});
    assert_elements("{{a},", (const char *[]){"a", NULL});
    assert_elements("{{a},{", (const char *[]){"a", NULL});
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("array_text");
    TCase *tcase = tcase_create("array_text");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, elements_come_one_by_one);
    tcase_add_test(tcase, quotes_and_backslashes_are_taken_off);
    tcase_add_test(tcase, elements_of_two_dimensions_come_one_after_the_other);
    tcase_add_test(tcase, text_that_is_cut_off_ends);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
