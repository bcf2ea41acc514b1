/* What the producer of runs remembers of topics, as far as no broker is needed; and what a record takes of a batch. */
#include "sinks/kafka/kafka_topics.h"

#include "sinks/kafka/kafka_conf.h"
#include "sinks/kafka/kafka_message.h"
#include "tests/support/run_suite.h"

#include <check.h>

#define MOST ((size_t)1000000)
#define KB ((size_t)1024)

START_TEST(batches_are_as_large_as_may_be)
{
    struct kafka_topic topic = {.count = 1};
    ck_assert_uint_eq(kafka_topic_batch_bytes(&topic, MOST, SECOND_US), MOST);
}
END_TEST

START_TEST(refused_size_is_halved_for_ten_minutes)
{
    struct kafka_topic topic = {.count = 1};
    kafka_topic_refused(&topic, 800 * KB, SECOND_US);
    ck_assert_uint_eq(kafka_topic_batch_bytes(&topic, MOST, SECOND_US), 400 * KB);
    ck_assert_uint_eq(kafka_topic_batch_bytes(&topic, 300 * KB, SECOND_US), 300 * KB);
    ck_assert_uint_eq(kafka_topic_batch_bytes(&topic, MOST, 600 * SECOND_US), 400 * KB);
    ck_assert_uint_eq(kafka_topic_batch_bytes(&topic, MOST, 601 * SECOND_US), MOST);
}
END_TEST

START_TEST(small_batches_are_not_made_smaller)
{
    struct kafka_topic topic = {.count = 1};
    kafka_topic_refused(&topic, 6 * KB, SECOND_US);
    ck_assert_uint_eq(kafka_topic_batch_bytes(&topic, MOST, SECOND_US), 4 * KB);
    kafka_topic_refused(&topic, 4 * KB, SECOND_US);
    ck_assert_uint_eq(kafka_topic_batch_bytes(&topic, MOST, SECOND_US), 4 * KB);
}
END_TEST

START_TEST(record_takes_its_parts_and_what_is_around_them)
{
    struct event event = {.id = 7, .key = SPAN_LITERAL("key"), .payload = SPAN_LITERAL("payload")};
    struct error err;
    rd_kafka_headers_t *headers = kafka_message_headers(&event, &err);
    size_t plain = kafka_message_bytes(&event, headers);
    ck_assert_uint_ge(plain, strlen("key") + strlen("payload") + strlen("id") + strlen("7") + 40);
    rd_kafka_headers_destroy(headers);
    event.headers = span_of("{\"n\":1e15,\"tenant\":\"a\"}");
    headers = kafka_message_headers(&event, &err);
    ck_assert_uint_ge(kafka_message_bytes(&event, headers), plain + strlen("n1e15tenanta"));
    rd_kafka_headers_destroy(headers);
}
END_TEST

START_TEST(partitioner_is_the_one_that_is_set)
{
    static const struct {
        const char *name;
        kafka_partitioner *partitioner;
    } rows[] = {
        {"consistent", rd_kafka_msg_partitioner_consistent},
        {"consistent_random", rd_kafka_msg_partitioner_consistent},
        {"murmur2", rd_kafka_msg_partitioner_murmur2},
        {"murmur2_random", rd_kafka_msg_partitioner_murmur2},
        {"fnv1a", rd_kafka_msg_partitioner_fnv1a},
        {"fnv1a_random", rd_kafka_msg_partitioner_fnv1a},
        {"random", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rd_kafka_conf_t *conf = rd_kafka_conf_new();
        rd_kafka_conf_set(conf, "partitioner", rows[i].name, NULL, 0);
        ck_assert_msg(kafka_conf_partitioner(conf) == rows[i].partitioner, "%s", rows[i].name);
        rd_kafka_conf_destroy(conf);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kafka_topics");
    TCase *tcase = tcase_create("kafka_topics");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, batches_are_as_large_as_may_be);
    tcase_add_test(tcase, refused_size_is_halved_for_ten_minutes);
    tcase_add_test(tcase, small_batches_are_not_made_smaller);
    tcase_add_test(tcase, record_takes_its_parts_and_what_is_around_them);
    tcase_add_test(tcase, partitioner_is_the_one_that_is_set);
    return run_suite(suite);
}
