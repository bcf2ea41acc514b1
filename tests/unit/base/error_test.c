#include "relay/base/error.h"
#include "relay/base/utf8.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

START_TEST(error_is_filled_and_returned_as_false)
{
    struct error err;
    ck_assert(!error_set(&err, ERROR_TIMEOUT, "no answer in %d ms", 5));
    ck_assert_int_eq(err.kind, ERROR_TIMEOUT);
    ck_assert_str_eq(err.text, "no answer in 5 ms");
}
END_TEST

START_TEST(nobody_needs_to_ask_for_the_text)
{
    ck_assert(!error_set(NULL, ERROR_TIMEOUT, "x"));
    ck_assert(!error_prefix(NULL, "x"));
}
END_TEST

START_TEST(text_is_one_line_without_control_characters)
{
    struct error err;
    error_set(&err, ERROR_REFUSED, "ERROR: a\n\tLINE 1:\x1b[31m\x7f\r\n\n");
    ck_assert_str_eq(err.text, "ERROR: a  LINE 1: [31m");
    error_set(&err, ERROR_REFUSED, " \r\n");
    ck_assert_str_eq(err.text, "");
}
END_TEST

START_TEST(prefix_goes_before_and_keeps_the_kind)
{
    struct error err;
    error_set(&err, ERROR_ROUTE, "no such topic");
    ck_assert(!error_prefix(&err, "sink %s", "bus"));
    ck_assert_str_eq(err.text, "sink bus: no such topic");
    ck_assert_int_eq(err.kind, ERROR_ROUTE);
}
END_TEST

START_TEST(long_text_is_cut)
{
    struct error err;
    char text[2 * ERROR_TEXT_MAX];
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '\0';
    error_set(&err, ERROR_REFUSED, "%s", text);
    ck_assert_uint_eq(strlen(err.text), ERROR_TEXT_MAX - 1);
    error_prefix(&err, "here");
    ck_assert_uint_eq(strlen(err.text), ERROR_TEXT_MAX - 1);
    ck_assert_int_eq(strncmp(err.text, "here: aaa", 9), 0);
    error_prefix(&err, "%s", text);
    ck_assert_uint_eq(strlen(err.text), ERROR_TEXT_MAX - 1);
}
END_TEST

START_TEST(text_is_utf_8_whatever_was_put_into_it_and_wherever_it_was_cut)
{
    struct error err;
    error_set(&err, ERROR_REFUSED, "%.*s: caf\xc3\xa9, caf\xe9", 3, "\xc3\xbc\xc3\xbc");
    ck_assert_str_eq(err.text, "\xc3\xbc?: caf\xc3\xa9, caf?");
    char text[2 * ERROR_TEXT_MAX + 1];
    for (size_t i = 0; i < ERROR_TEXT_MAX; i++)
        memcpy(text + 2 * i, "\xc3\xbc", 2);
    text[sizeof text - 1] = '\0';
    for (size_t at = 0; at < 2; at++) {
        error_set(&err, ERROR_REFUSED, "%s", text + 2 * at);
        ck_assert(utf8_valid(span_of(err.text)));
        error_prefix(&err, "%.*s", (int)at, "x");
        ck_assert(utf8_valid(span_of(err.text)));
    }
}
END_TEST

START_TEST(old_text_may_be_an_argument_of_the_new)
{
    struct error err;
    error_set(&err, ERROR_REFUSED, "inner");
    error_set(&err, ERROR_REFUSED, "outer (%s)", err.text);
    ck_assert_str_eq(err.text, "outer (inner)");
}
END_TEST

START_TEST(every_kind_has_a_name_of_its_own)
{
    for (int i = ERROR_NONE; i <= ERROR_INTERNAL; i++) {
        ck_assert_str_ne(error_kind_name((enum error_kind)i), "unknown");
        for (int j = ERROR_NONE; j < i; j++)
            ck_assert_str_ne(error_kind_name((enum error_kind)i), error_kind_name((enum error_kind)j));
    }
    ck_assert_str_eq(error_kind_name((enum error_kind)99), "unknown");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("error");
    TCase *tcase = tcase_create("error");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, error_is_filled_and_returned_as_false);
    tcase_add_test(tcase, nobody_needs_to_ask_for_the_text);
    tcase_add_test(tcase, text_is_one_line_without_control_characters);
    tcase_add_test(tcase, prefix_goes_before_and_keeps_the_kind);
    tcase_add_test(tcase, long_text_is_cut);
    tcase_add_test(tcase, text_is_utf_8_whatever_was_put_into_it_and_wherever_it_was_cut);
    tcase_add_test(tcase, old_text_may_be_an_argument_of_the_new);
    tcase_add_test(tcase, every_kind_has_a_name_of_its_own);
    return run_suite(suite);
}
