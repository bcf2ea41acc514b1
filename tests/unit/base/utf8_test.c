#include "relay/base/utf8.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>

static const char *const valid[] = {
    "",
    "plain ascii, longer than eight bytes",
    "\x7f",
    "\xc2\x80",
    "\xdf\xbf",
    "\xe0\xa0\x80",
    "\xed\x9f\xbf",
    "\xee\x80\x80",
    "\xef\xbf\xbf",
    "\xf0\x90\x80\x80",
    "\xf4\x8f\xbf\xbf",
    "1234567\xc3\xa9",
    "12345678\xe2\x82\xac",
};

static const char *const invalid[] = {
    "\x80",             /* continuation without a lead */
    "\xbf",             /* the same */
    "\xc0\x80",         /* overlong NUL */
    "\xc1\xbf",         /* overlong */
    "\xe0\x9f\xbf",     /* overlong */
    "\xf0\x8f\xbf\xbf", /* overlong */
    "\xed\xa0\x80",     /* high surrogate */
    "\xed\xbf\xbf",     /* low surrogate */
    "\xf4\x90\x80\x80", /* above U+10FFFF */
    "\xf5\x80\x80\x80", /* above U+10FFFF */
    "\xff",             /* never */
    "\xc3",             /* cut */
    "\xe2\x82",         /* cut */
    "\xf0\x9f\x98",     /* cut */
    "\xe2\x28\xa1",     /* second is none */
    "\xe2\x82\x28",     /* third is none */
    "12345678\xff",     /* behind the fast path */
    "1234567\xff",      /* in it */
};

START_TEST(valid_text_is_accepted)
{
    ck_assert_msg(utf8_valid(span_of(valid[_i])), "case %d", _i);
}
END_TEST

START_TEST(invalid_text_is_refused)
{
    ck_assert_msg(!utf8_valid(span_of(invalid[_i])), "case %d", _i);
}
END_TEST

START_TEST(absent_text_and_nul_bytes_are_valid)
{
    ck_assert(utf8_valid((struct span){0}));
    ck_assert(utf8_valid(SPAN_LITERAL("a\0b")));
}
END_TEST

START_TEST(a_cut_sequence_does_not_look_behind_its_end)
{
    char *one = malloc(1); /* its own allocation, so that the sanitizer would see it */
    *one = '\xe2';
    ck_assert(!utf8_valid((struct span){one, 1}));
    free(one);
}
END_TEST

static const struct {
    const char *text;
    size_t max, fit;
} fits[] = {
    {"abc", 3, 3},
    {"abc", 2, 2},
    {"a\xc3\xa9", 2, 1},
    {"\xe2\x82\xac", 2, 0},
    {"\xf0\x9f\x98\x80", 3, 0},
    {"a\x80\x80\x80\x80\x80", 5, 5}, /* not UTF-8: there is nothing to keep whole */
    {"\x80\x80", 1, 1},
};

START_TEST(text_is_cut_between_characters)
{
    ck_assert_uint_eq(utf8_fit(span_of(fits[_i].text), fits[_i].max), fits[_i].fit);
}
END_TEST

START_TEST(character_is_measured)
{
    ck_assert_uint_eq(utf8_char((struct span){0}), 0);
    ck_assert_uint_eq(utf8_char(span_of("ab")), 1);
    ck_assert_uint_eq(utf8_char(span_of("\xe2\x82\xac.")), 3);
    ck_assert_uint_eq(utf8_char(span_of("\xe2\x82")), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("utf8");
    TCase *tcase = tcase_create("utf8");
    tcase_add_loop_test(tcase, valid_text_is_accepted, 0, (int)(sizeof valid / sizeof valid[0]));
    tcase_add_loop_test(tcase, invalid_text_is_refused, 0, (int)(sizeof invalid / sizeof invalid[0]));
    tcase_add_test(tcase, absent_text_and_nul_bytes_are_valid);
    tcase_add_test(tcase, a_cut_sequence_does_not_look_behind_its_end);
    tcase_add_loop_test(tcase, text_is_cut_between_characters, 0, (int)(sizeof fits / sizeof fits[0]));
    tcase_add_test(tcase, character_is_measured);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
