/* An event's `headers`, as sinks send them: every JSON object is read, and what it says is not changed. */
#include "sinks/event_headers.h"

#include "tests/support/run_suite.h"

#include <check.h>

static struct event_headers headers;
static struct error err;

static void setup(void)
{
    headers = (struct event_headers){0};
}

static void teardown(void)
{
    event_headers_done(&headers);
}

static void read_of(const char *json)
{
    event_headers_done(&headers);
    /* On the heap and without a NUL, so that a sanitizer sees a byte that is read behind it. */
    size_t size = strlen(json);
    char *copy = malloc(size);
    for (size_t i = 0; i < size; i++)
        copy[i] = json[i];
    bool good = event_headers_read((struct span){copy, size}, &headers, &err);
    free(copy);
    ck_assert_msg(good, "%s: %s", json, good ? "" : err.text);
}

static void is_value(struct span value, const char *expected)
{
    if (expected)
        ck_assert_msg(value.data && span_equal(value, span_of(expected)) && value.data[value.size] == '\0', "%s: %.*s",
                      expected, (int)value.size, value.data);
    else
        ck_assert_ptr_null(value.data);
}

static const struct {
    const char *json, *name, *value;
} values[] = {
    {"{\"trace_id\":12345678901234567890}", "trace_id", "12345678901234567890"},
    {"{\"n\":-123456789012345678901234567890.000}", "n", "-123456789012345678901234567890.000"},
    {"{\"n\": 1e400}", "n", "1e400"},
    {"{\"n\": 1.1}", "n", "1.1"},
    {"{\"n\": 1.10}", "n", "1.10"},
    {"{\"n\":-0}", "n", "-0"},
    {"{\"n\": 1E+2 }", "n", "1E+2"},
    {" { \"t\" : true } ", "t", "true"},
    {"{\"f\":false}", "f", "false"},
    {"{\"nothing\":null}", "nothing", NULL},
    {"{\"list\": [ 1.0 ,\n\t\"a ] b\", {\"c\": 1e-400} ] }", "list", "[1.0,\"a ] b\",{\"c\":1e-400}]"},
    {"{\"o\": {\"a, b\" : \"c } \\\" \\\\\", \"d\": [] } }", "o", "{\"a, b\":\"c } \\\" \\\\\",\"d\":[]}"},
    {"{\"s\":\"\"}", "s", ""},
    {"{\"\":\"s\"}", "", "s"},
    {"{\"s\": \" a , } b \"}", "s", " a , } b "},
    {"{\"s\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}", "s", "\"\\/\b\f\n\r\t"},
    {"{\"\\u0073\":\"\\u007f\\u0080\\u07ff\\u0800\\uFFFF\"}", "s", "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"},
    {"{\"s\":\"\\uD800\\uDC00\\uDBFF\\udfff\xf0\x9f\x98\x80\"}", "s",
     "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xf0\x9f\x98\x80"},
};

START_TEST(value_is_sent_as_it_is_written)
{
    read_of(values[_i].json);
    ck_assert_uint_eq(headers.count, 1);
    ck_assert_str_eq(headers.list[0].name.data, values[_i].name);
    is_value(headers.list[0].value, values[_i].value);
}
END_TEST

START_TEST(string_may_hold_a_nul)
{
    read_of("{\"s\":\"a\\u0000b\"}");
    ck_assert(span_equal(headers.list[0].value, (struct span){"a\0b", 3}));
}
END_TEST

START_TEST(entries_keep_their_order)
{
    read_of("{\"b\":1,\"a\":\"2\", \"c\" : null , \"d\":[3]}");
    ck_assert_uint_eq(headers.count, 4);
    static const char *const expected[][2] = {{"b", "1"}, {"a", "2"}, {"c", NULL}, {"d", "[3]"}};
    for (size_t i = 0; i < 4; i++) {
        ck_assert_str_eq(headers.list[i].name.data, expected[i][0]);
        is_value(headers.list[i].value, expected[i][1]);
    }
}
END_TEST

START_TEST(nothing_and_an_empty_object_are_no_entries)
{
    ck_assert(event_headers_read((struct span){NULL, 0}, &headers, &err));
    ck_assert_uint_eq(headers.count, 0);
    read_of(" { } ");
    ck_assert_uint_eq(headers.count, 0);
}
END_TEST

START_TEST(of_entries_with_one_name_the_last_counts)
{
    read_of("{\"a\":1,\"b\":\"x\",\"\\u0061\":2,\"c\":3,\"b\":null,\"a\":4}");
    ck_assert_uint_eq(headers.count, 3);
    ck_assert_str_eq(headers.list[0].name.data, "c");
    ck_assert_str_eq(headers.list[1].name.data, "b");
    is_value(headers.list[1].value, NULL);
    ck_assert_str_eq(headers.list[2].name.data, "a");
    is_value(headers.list[2].value, "4");
}
END_TEST

static const struct {
    const char *json, *why;
} refusals[] = {
    {"", "headers: not JSON: byte 1 of 0"},
    {"{\"a\":", "headers: not JSON: byte 6 of 5"},
    {"{\"secret\": x}", "headers: not JSON: byte 12 of 13"},
    {"{\"a\":\"\xff\"}", "headers: not JSON: not UTF-8"},
    {"[]", "headers: JSON, but not an object"},
    {" null", "headers: JSON, but not an object"},
    {"\"{}\"", "headers: JSON, but not an object"},
    {"{\"a\\u0000b\":1}", "headers: the name of entry 1 is no text"},
    {"{\"a\":1,\"\\ud800\":1}", "headers: the name of entry 2 is no text"},
    {"{\"a\":\"\\udc00\"}", "headers: the value of entry 1 is no text"},
    {"{\"a\":\"\\ud800\\n\"}", "headers: the value of entry 1 is no text"},
    {"{\"a\":\"\\ud800\\u0041\"}", "headers: the value of entry 1 is no text"},
    {"{\"a\":\"\\ud83d\"}", "headers: the value of entry 1 is no text"},
};

START_TEST(what_is_no_object_of_texts_is_refused_and_not_quoted)
{
    ck_assert(!event_headers_read(span_of(refusals[_i].json), &headers, &err));
    ck_assert_int_eq(err.kind, ERROR_REFUSED);
    ck_assert_str_eq(err.text, refusals[_i].why);
    ck_assert_ptr_null(headers.list);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("event_headers");
    TCase *tcase = tcase_create("event_headers");
    tcase_add_checked_fixture(tcase, setup, teardown);
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, value_is_sent_as_it_is_written, 0, sizeof values / sizeof values[0]);
    tcase_add_test(tcase, string_may_hold_a_nul);
    tcase_add_test(tcase, entries_keep_their_order);
    tcase_add_test(tcase, nothing_and_an_empty_object_are_no_entries);
    tcase_add_test(tcase, of_entries_with_one_name_the_last_counts);
    tcase_add_loop_test(tcase, what_is_no_object_of_texts_is_refused_and_not_quoted, 0,
                        sizeof refusals / sizeof refusals[0]);
    return run_suite(suite);
}
