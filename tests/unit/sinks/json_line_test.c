#include "sinks/json_line.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>

static struct event event;
static struct delivery delivery;
static struct json_writer line;

static void setup(void)
{
    event = (struct event){.id = 812,
                           .key = SPAN_LITERAL("7"),
                           .type = SPAN_LITERAL("paid"),
                           .payload = SPAN_LITERAL("{\"total\":12.50}"),
                           .payload_kind = PAYLOAD_JSON,
                           .headers = SPAN_LITERAL("{\"a\":\"b\"}"),
                           .created_at_us = INT64_C(1795255200123456),
                           .attempt = 1};
    delivery = (struct delivery){.event = &event, .destination = SPAN_LITERAL("orders.paid")};
}

static void teardown(void)
{
    json_writer_done(&line);
}

static void line_is(const char *wanted)
{
    line.size = 0;
    json_line_write(&line, &delivery);
    ck_assert_msg(span_equal((struct span){line.data, line.size}, span_of(wanted)), "got    %.*swanted %s",
                  (int)line.size, line.data, wanted);
}

/* The line as a parser reads it, checked to be one line. */
static json_t *line_parse(void)
{
    line.size = 0;
    json_line_write(&line, &delivery);
    ck_assert_ptr_eq(memchr(line.data, '\n', line.size), line.data + line.size - 1);
    json_error_t error;
    json_t *parsed = json_loadb(line.data, line.size, JSON_ALLOW_NUL, &error);
    ck_assert_msg(parsed != NULL, "%s in %.*s", error.text, (int)line.size, line.data);
    return parsed;
}

START_TEST(line_holds_every_member_in_order)
{
    line_is("{\"id\":812,\"key\":\"7\",\"type\":\"paid\",\"destination\":\"orders.paid\",\"payload\":{\"total\":12.50},"
            "\"headers\":{\"a\":\"b\"},\"created_at\":\"2026-11-21T10:00:00.123456Z\",\"attempt\":1}\n");
}
END_TEST

START_TEST(absent_values_are_null)
{
    event = (struct event){.id = -1, .attempt = 3, .created_at_us = EVENT_NO_TIME};
    delivery.destination = (struct span){0};
    line_is("{\"id\":-1,\"key\":null,\"type\":null,\"destination\":null,\"payload\":null,\"headers\":null,"
            "\"created_at\":null,\"attempt\":3}\n");
}
END_TEST

START_TEST(event_id_and_traceparent_follow_when_present)
{
    event.event_id = SPAN_LITERAL("0b9a2c60-6a4e-4d4e-9c0c-0d4a3c1f2b11");
    event.traceparent = SPAN_LITERAL("00-ab-cd-01");
    json_t *parsed = line_parse();
    ck_assert_str_eq(json_string_value(json_object_get(parsed, "event_id")), "0b9a2c60-6a4e-4d4e-9c0c-0d4a3c1f2b11");
    ck_assert_str_eq(json_string_value(json_object_get(parsed, "traceparent")), "00-ab-cd-01");
    json_decref(parsed);
}
END_TEST

START_TEST(json_payload_keeps_every_digit_and_space)
{
    event.payload = SPAN_LITERAL("{ \"n\" : 12345678901234567890.000100e+5, \"n\":1 }");
    line.size = 0;
    json_line_write(&line, &delivery);
    ck_assert_ptr_nonnull(memmem(line.data, line.size, event.payload.data, event.payload.size));
}
END_TEST

START_TEST(json_payload_with_line_breaks_stays_one_line)
{
    event.payload = SPAN_LITERAL("\n{\r\n\t\"a\":\n\"x\\ny\"\r}\n");
    event.headers = SPAN_LITERAL("{\n}");
    json_t *parsed = line_parse();
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(parsed, "payload"), "a")), "x\ny");
    ck_assert_ptr_null(memchr(line.data, '\r', line.size));
    json_decref(parsed);
}
END_TEST

START_TEST(headers_of_a_text_column_leave_the_line_json)
{
    static const struct {
        const char *headers, *wanted;
    } cases[] = {
        {"{\"a\": 1.10}", "{\"a\": 1.10}"},
        {"[1]", "[1]"},
        {"not \"json", "\"not \\\"json\""},
        {"", "\"\""},
        {"{} {}", "\"{} {}\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        event = (struct event){.id = 1, .headers = span_of(cases[i].headers), .headers_kind = PAYLOAD_TEXT};
        json_decref(line_parse());
        char wanted[64];
        snprintf(wanted, sizeof wanted, "\"headers\":%s,", cases[i].wanted);
        ck_assert_ptr_nonnull(memmem(line.data, line.size, wanted, strlen(wanted)));
    }
}
END_TEST

/* What the parser of the other tests cannot hold. */
START_TEST(headers_of_a_text_column_may_have_numbers_of_any_size)
{
    event = (struct event){
        .id = 1, .headers = SPAN_LITERAL("{\"a\":12345678901234567890,\"b\":1e400}"), .headers_kind = PAYLOAD_TEXT};
    line_is("{\"id\":1,\"key\":null,\"type\":null,\"destination\":\"orders.paid\",\"payload\":null,"
            "\"headers\":{\"a\":12345678901234567890,\"b\":1e400},\"created_at\":\"1970-01-01T00:00:00.000000Z\","
            "\"attempt\":0}\n");
}
END_TEST

START_TEST(every_character_of_a_text_survives)
{
    char text[256];
    size_t size = 0;
    for (int c = 0; c < 0x80; c++)
        text[size++] = (char)c;
    static const char more[] = "\xc3\xa9\xe2\x82\xac\xe2\x80\xa8\xf0\x9f\x98\x80";
    memcpy(text + size, more, sizeof more - 1);
    size += sizeof more - 1;
    event.payload = (struct span){text, size};
    event.payload_kind = PAYLOAD_TEXT;
    event.key = event.payload;
    json_t *parsed = line_parse();
    static const char *const names[] = {"payload", "key"};
    for (size_t i = 0; i < 2; i++) {
        json_t *value = json_object_get(parsed, names[i]);
        ck_assert_uint_eq(json_string_length(value), size);
        ck_assert_mem_eq(json_string_value(value), text, size);
    }
    json_decref(parsed);
}
END_TEST

START_TEST(control_characters_have_their_short_escapes)
{
    event =
        (struct event){.id = 1, .payload = SPAN_LITERAL("\b\f\n\r\t\"\\/\x01\x1f\x7f"), .payload_kind = PAYLOAD_TEXT};
    event.created_at_us = EVENT_NO_TIME;
    delivery.destination = (struct span){0};
    line_is("{\"id\":1,\"key\":null,\"type\":null,\"destination\":null,"
            "\"payload\":\"\\b\\f\\n\\r\\t\\\"\\\\/\\u0001\\u001f\x7f\",\"headers\":null,\"created_at\":null,"
            "\"attempt\":0}\n");
}
END_TEST

START_TEST(bytes_are_base64)
{
    static const struct {
        const char *bytes, *wanted;
    } cases[] = {{"", ""},
                 {"f", "Zg=="},
                 {"fo", "Zm8="},
                 {"foo", "Zm9v"},
                 {"foob", "Zm9vYg=="},
                 {"\xff\xfe\xfd", "//79"},
                 {"\xfb\xef\xbe", "++++"}};
    event.payload_kind = PAYLOAD_BYTES;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        event.payload = span_of(cases[i].bytes);
        json_t *parsed = line_parse();
        ck_assert_ptr_null(json_object_get(parsed, "payload"));
        ck_assert_str_eq(json_string_value(json_object_get(parsed, "payload_base64")), cases[i].wanted);
        json_decref(parsed);
    }
}
END_TEST

START_TEST(text_that_is_not_utf8_is_base64_wherever_it_stands)
{
    struct span bad = SPAN_LITERAL("a\xff");
    event.key = event.type = event.payload = event.headers = event.event_id = event.traceparent = bad;
    delivery.destination = bad;
    static const char *const names[] = {"key_base64",      "type_base64",        "payload_base64",    "headers_base64",
                                        "event_id_base64", "traceparent_base64", "destination_base64"};
    json_t *parsed = line_parse();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ck_assert_str_eq(json_string_value(json_object_get(parsed, names[i])), "Yf8=");
    ck_assert_uint_eq(json_object_size(parsed), 10);
    json_decref(parsed);
}
END_TEST

START_TEST(instants_of_any_year_are_written)
{
    static const struct {
        int64_t wall_us;
        const char *wanted;
    } cases[] = {{0, "1970-01-01T00:00:00.000000Z"},
                 {1, "1970-01-01T00:00:00.000001Z"},
                 {-1, "1969-12-31T23:59:59.999999Z"},
                 {INT64_C(951782400000000), "2000-02-29T00:00:00.000000Z"},
                 {INT64_C(253402300800000000), "10000-01-01T00:00:00.000000Z"},
                 {INT64_C(-62135596800000000), "0001-01-01T00:00:00.000000Z"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        event.created_at_us = cases[i].wall_us;
        json_t *parsed = line_parse();
        ck_assert_str_eq(json_string_value(json_object_get(parsed, "created_at")), cases[i].wanted);
        json_decref(parsed);
    }
}
END_TEST

START_TEST(extreme_ids_are_written)
{
    event.id = INT64_MIN;
    json_t *parsed = line_parse();
    ck_assert_int_eq(json_integer_value(json_object_get(parsed, "id")), INT64_MIN);
    json_decref(parsed);
}
END_TEST

START_TEST(large_payload_is_written_whole)
{
    size_t size = (size_t)3 << 20;
    char *large = malloc(size);
    memset(large, '"', size);
    event.payload = (struct span){large, size};
    event.payload_kind = PAYLOAD_TEXT;
    json_t *parsed = line_parse();
    ck_assert_uint_eq(json_string_length(json_object_get(parsed, "payload")), size);
    json_decref(parsed);
    free(large);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("json_line");
    TCase *tcase = tcase_create("json_line");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, line_holds_every_member_in_order);
    tcase_add_test(tcase, absent_values_are_null);
    tcase_add_test(tcase, event_id_and_traceparent_follow_when_present);
    tcase_add_test(tcase, json_payload_keeps_every_digit_and_space);
    tcase_add_test(tcase, json_payload_with_line_breaks_stays_one_line);
    tcase_add_test(tcase, headers_of_a_text_column_leave_the_line_json);
    tcase_add_test(tcase, headers_of_a_text_column_may_have_numbers_of_any_size);
    tcase_add_test(tcase, every_character_of_a_text_survives);
    tcase_add_test(tcase, control_characters_have_their_short_escapes);
    tcase_add_test(tcase, bytes_are_base64);
    tcase_add_test(tcase, text_that_is_not_utf8_is_base64_wherever_it_stands);
    tcase_add_test(tcase, instants_of_any_year_are_written);
    tcase_add_test(tcase, extreme_ids_are_written);
    tcase_add_test(tcase, large_payload_is_written_whole);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
