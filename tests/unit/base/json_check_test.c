/* What PostgreSQL takes for JSON: each line of json_texts.txt says so of json and jsonb, y or n, and has the text
 * behind that. tests/integration/delivery/test_stage_payload.py asks the database about the same lines. */
#include "relay/base/json_check.h"

#include "relay/base/file.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>

START_TEST(text_is_taken_as_the_database_takes_it)
{
    struct error err;
    size_t size, lines = 0;
    char *texts = file_read("tests/unit/base/json_texts.txt", 100000, &size, &err);
    ck_assert_msg(texts != NULL, "%s", err.text);
    for (char *line = texts, *end; (end = strchr(line, '\n')); line = end + 1, lines++) {
        struct span text = {line + 3, (size_t)(end - line) - 3};
        ck_assert_msg(json_check(text, false, &err) == (line[0] == 'y'), "json: %.*s", (int)text.size, text.data);
        ck_assert_msg(json_check(text, true, &err) == (line[1] == 'y'), "jsonb: %.*s", (int)text.size, text.data);
    }
    ck_assert_uint_gt(lines, 60);
    free(texts);
}
END_TEST

START_TEST(first_wrong_byte_is_told)
{
    struct error err;
    ck_assert(!json_check(span_of("[1, 2"), false, &err));
    ck_assert_str_eq(err.text, "not JSON: byte 6 of 5");
    ck_assert(!json_check(span_of("<html>"), true, &err));
    ck_assert_str_eq(err.text, "not JSON that jsonb takes: byte 1 of 6");
    ck_assert(!json_check(span_of("[1}"), true, &err));
    ck_assert_str_eq(err.text, "not JSON that jsonb takes: byte 3 of 3");
    ck_assert(!json_check((struct span){"1\0", 2}, false, &err));
    ck_assert(!json_check((struct span){"\"\\u00\0", 6}, false, &err));
    ck_assert(!json_check(span_of("\"\xff\""), false, &err));
    ck_assert_str_eq(err.text, "not JSON: not UTF-8");
    ck_assert_int_eq(err.kind, ERROR_REFUSED);
}
END_TEST

START_TEST(depth_is_bounded)
{
    struct error err;
    char text[2 * JSON_DEPTH_MAX + 2];
    memset(text, '[', JSON_DEPTH_MAX + 1);
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    ck_assert(json_check((struct span){text + 1, sizeof text - 2}, true, &err));
    ck_assert(!json_check((struct span){text, sizeof text}, true, &err));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json_check");
    TCase *tcase = tcase_create("json_check");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, text_is_taken_as_the_database_takes_it);
    tcase_add_test(tcase, first_wrong_byte_is_told);
    tcase_add_test(tcase, depth_is_bounded);
    return run_suite(suite);
}
