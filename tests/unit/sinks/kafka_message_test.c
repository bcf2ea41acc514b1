#include "sinks/kafka/kafka_message.h"

#include "tests/support/run_suite.h"

#include <check.h>

static const struct {
    const char *name, *value;
} wanted[] = {
    {"trace_id", "12345678901234567890"}, {"huge", "1e400"}, {"price", "1.1"}, {"tenant", "a\"b"},
    {"list", "[1.10,{\"a\":2}]"},         {"none", NULL},    {"id", "7"},
};

START_TEST(headers_are_sent_as_they_are_written)
{
    struct event event = {
        .id = 7,
        .headers = SPAN_LITERAL("{\"trace_id\": 12345678901234567890, \"huge\": 1e400, \"price\": 1.1, "
                                "\"tenant\": \"a\\\"b\", \"list\": [1.10, {\"a\": 2}], \"none\": null}"),
    };
    struct error err;
    rd_kafka_headers_t *headers = kafka_message_headers(&event, &err);
    ck_assert_msg(headers != NULL, "%s", headers ? "" : err.text);
    const size_t count = sizeof wanted / sizeof wanted[0];
    ck_assert_uint_eq(rd_kafka_header_cnt(headers), count);
    for (size_t i = 0; i < count; i++) {
        const char *name;
        const void *value;
        size_t size;
        ck_assert_int_eq(rd_kafka_header_get_all(headers, i, &name, &value, &size), RD_KAFKA_RESP_ERR_NO_ERROR);
        ck_assert_str_eq(name, wanted[i].name);
        ck_assert(wanted[i].value ? span_equal((struct span){value, size}, span_of(wanted[i].value)) : !value);
    }
    rd_kafka_headers_destroy(headers);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kafka_message");
    TCase *tcase = tcase_create("kafka_message");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, headers_are_sent_as_they_are_written);
    return run_suite(suite);
}
