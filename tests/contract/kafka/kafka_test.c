/* The Kafka sink against librdkafka's mock cluster: records, topics and configuration. With KAFKA_BOOTSTRAP in the
 * environment the common suite also runs against that cluster, whose topic KAFKA_TOPIC (default "contract") must exist.
 */
#include "relay/base/arena.h"
#include "sinks/kafka/kafka_conf.h"
#include "tests/contract/kafka/kafka_mock.h"
#include "tests/support/run_suite.h"

#include <stdlib.h>

/* ---- whose fault it is ---- */

START_TEST(record_the_broker_refuses_is_rejected)
{
    static const rd_kafka_resp_err_t codes[] = {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_INVALID_RECORD};
    struct contract *c = kafka_begin();
    kafka_warm_up(c);
    kafka_refuse_produce(codes[_i], 2); /* in its batch, and alone */
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_REJECTED, ERROR_REFUSED);
    text_has(d, TOPIC);
    kafka_end(c);
}
END_TEST

START_TEST(neighbours_of_a_refused_record_in_its_batch_are_delivered)
{
    kafka_mock_start(&kafka_setup, 1);
    kafka_property("linger.ms", "200");
    rd_kafka_mock_topic_create(kafka_mock, "one", 1, 1);
    kafka_setup.destination = "one";
    struct contract *c = contract_open(&kafka_setup);
    kafka_warm_up(c);
    for (int i = 0; i < 10; i++)
        contract_add(c, arena_printf(c->arena, "key-%d", i), span_of("x"));
    kafka_refuse_produce(RD_KAFKA_RESP_ERR_INVALID_RECORD, 2); /* the batch of ten, then the first alone */
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_REJECTED), 1);
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 10);
    kafka_end(c);
}
END_TEST

START_TEST(event_larger_than_message_max_bytes_is_rejected_with_its_size)
{
    kafka_mock_start(&kafka_setup, 1);
    kafka_property("message.max.bytes", "2000");
    struct contract *c = contract_open(&kafka_setup);
    char *large = arena_alloc(c->arena, 3000);
    memset(large, 'x', 3000);
    struct delivery *d = contract_add(c, "a", (struct span){large, 3000});
    struct delivery *good = contract_add(c, "b", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_REJECTED, ERROR_REFUSED);
    text_has(d, "the event has 3001 bytes, more than message.max.bytes 2000");
    verdict_is(good, VERDICT_ACKED, ERROR_NONE);
    kafka_end(c);
}
END_TEST

START_TEST(topic_name_that_cannot_be_is_the_events_fault)
{
    static const struct {
        const char *topic, *text;
    } cases[] = {{"", "empty"}, {"a b", "byte 0x20 at place 2"}, {"..", "\"..\""}, {"caf\xc3\xa9", "byte 0xc3"}};
    struct contract *c = kafka_begin();
    struct delivery *ds[4];
    for (size_t i = 0; i < 4; i++) {
        ds[i] = contract_add(c, NULL, span_of("x"));
        ds[i]->destination = span_of(cases[i].topic);
    }
    char name[251];
    memset(name, 'a', 250);
    name[250] = '\0';
    struct delivery *longer = contract_add(c, NULL, span_of("x"));
    longer->destination = span_of(name);
    ck_assert(contract_run(c, PATIENCE_MS));
    for (size_t i = 0; i < 4; i++) {
        verdict_is(ds[i], VERDICT_REJECTED, ERROR_REFUSED);
        text_has(ds[i], cases[i].text);
    }
    text_has(longer, "250 bytes; Kafka allows 249");
    kafka_end(c);
}
END_TEST

START_TEST(headers_that_are_no_object_are_the_events_fault)
{
    static const char *const bad[] = {"[1]", "{\"a\":", "\"secret-canary\""};
    struct contract *c = kafka_begin();
    struct delivery *ds[3];
    for (size_t i = 0; i < 3; i++) {
        ds[i] = contract_add(c, NULL, span_of("x"));
        contract_event(ds[i])->headers = span_of(bad[i]);
    }
    ck_assert(contract_run(c, PATIENCE_MS));
    for (size_t i = 0; i < 3; i++) {
        verdict_is(ds[i], VERDICT_REJECTED, ERROR_REFUSED);
        text_has(ds[i], "headers");
        ck_assert_ptr_null(strstr(ds[i]->cause->text, "canary"));
    }
    kafka_end(c);
}
END_TEST

START_TEST(missing_topic_stops_the_route_and_goes_on_when_it_is_created)
{
    struct contract *c = kafka_begin();
    kafka_warm_up(c);
    rd_kafka_mock_topic_set_error(kafka_mock, "later",
                                  RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART); /* it creates all others */
    struct delivery *d = contract_add(c, "a", span_of("x"));
    d->destination = span_of("later");
    struct delivery *other = contract_add(c, "b", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_RETRY, ERROR_ROUTE);
    text_has(d, "later");
    verdict_is(other, VERDICT_ACKED, ERROR_NONE);
    ck_assert_int_eq(contract_probe(c, "later", PATIENCE_MS), REACH_NO);
    ck_assert_int_eq(contract_probe(c, TOPIC, PATIENCE_MS), REACH_YES);

    rd_kafka_mock_topic_set_error(kafka_mock, "later", RD_KAFKA_RESP_ERR_NO_ERROR);
    ck_assert_int_eq(contract_probe(c, "later", PATIENCE_MS), REACH_YES);
    struct delivery *again = contract_add(c, "c", span_of("x"));
    again->destination = span_of("later");
    ck_assert(contract_run(c, 3000));
    verdict_is(again, VERDICT_ACKED, ERROR_NONE);
    kafka_end(c);
}
END_TEST

START_TEST(topic_that_may_not_be_written_stops_the_route_and_goes_on_when_allowed)
{
    struct contract *c = kafka_begin();
    kafka_warm_up(c);
    kafka_refuse_produce(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, 1);
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_RETRY, ERROR_ROUTE);
    struct delivery *again = contract_add(c, "b", span_of("x"));
    ck_assert_int_eq(contract_probe(c, TOPIC, PATIENCE_MS), REACH_YES);
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(again, VERDICT_ACKED, ERROR_NONE);
    kafka_end(c);
}
END_TEST

/* ---- retries inside the library ---- */

START_TEST(passing_broker_errors_are_not_seen)
{
    static const rd_kafka_resp_err_t codes[] = {RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
                                                RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
                                                RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, RD_KAFKA_RESP_ERR__TRANSPORT};
    struct contract *c = kafka_begin();
    kafka_warm_up(c);
    kafka_refuse_produce(codes[_i], 2);
    for (int i = 0; i < 20; i++)
        contract_add(c, arena_printf(c->arena, "key-%d", i), span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), c->count);
    kafka_end(c);
}
END_TEST

START_TEST(ack_without_an_offset_is_none)
{
    struct contract *c = kafka_begin();
    kafka_warm_up(c);
    kafka_refuse_produce(RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER, 1); /* librdkafka: success, but where? */
    contract_add(c, "key", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[1]->verdict, VERDICT_UNKNOWN);
    ck_assert_ptr_nonnull(strstr(c->ds[1]->cause->text, "a connection was lost before the ack"));
    kafka_end(c);
}
END_TEST

START_TEST(failure_at_any_place_of_a_key_keeps_its_order)
{
    struct contract *c = kafka_begin();
    kafka_warm_up(c);
    /* One request each for those before it; then refused in its batch and alone. */
    static const rd_kafka_resp_err_t script[5] = {RD_KAFKA_RESP_ERR_NO_ERROR};
    rd_kafka_mock_push_request_errors_array(kafka_mock, 0 /* produce */, (size_t)_i, script);
    kafka_refuse_produce(RD_KAFKA_RESP_ERR_INVALID_RECORD, 2);
    for (int i = 0; i < 5; i++)
        contract_add(c, "key", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    for (size_t i = 1; i < c->count; i++) {
        size_t place = i - 1;
        enum verdict expected = place < (size_t)_i    ? VERDICT_ACKED
                                : place == (size_t)_i ? VERDICT_REJECTED
                                                      : VERDICT_NONE;
        ck_assert_int_eq(c->ds[i]->verdict, expected);
    }
    kafka_end(c);
}
END_TEST

START_TEST(full_queue_is_a_short_count)
{
    kafka_mock_start(&kafka_setup, 1);
    kafka_property("queue.buffering.max.messages", "10");
    struct contract *c = contract_open(&kafka_setup);
    for (int i = 0; i < 100; i++)
        contract_add(c, NULL, span_of("x"));
    ck_assert_uint_eq(contract_submit(c), 10);
    ck_assert_uint_eq(contract_submit(c), 0);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 100);
    kafka_end(c);
}
END_TEST

/* ---- configuration ---- */

static const struct {
    const char *name, *value, *text;
} bad_properties[] = {
    {"enable.idempotence", "false",
     "sink kafka: kafka properties: enable.idempotence must be true: without it a retry of librdkafka can reorder and "
     "duplicate events"},
    {"delivery.report.only.error", "true", "delivery.report.only.error must be false"},
    {"transactional.id", "x", "transactional.id is not supported"},
    {"partitioner", "random", "partitioner must not be random: events of one key would go to many partitions"},
    {"message.timeout.ms", "0", "message.timeout.ms must not be 0"},
    {"delivery.timeout.ms", "0", "message.timeout.ms must not be 0"},
    {"bootstrap.server", "x", "\"bootstrap.server\""},
    {"linger.ms", "soon", "sink kafka: kafka properties: linger.ms: "},
    {"acks", "1", "acks"},
    {"bootstrap.servers", "", "bootstrap.servers is missing; give the brokers"},
};

START_TEST(wrong_property_is_named)
{
    kafka_mock_start(&kafka_setup, 1);
    kafka_property(bad_properties[_i].name, bad_properties[_i].value);
    struct error err = {0};
    ck_assert_ptr_null(sink_open(&sink_kafka, "kafka", kafka_setup.settings, &err));
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    ck_assert_msg(strstr(err.text, bad_properties[_i].text) != NULL, "%s", err.text);
    kafka_mock_stop(&kafka_setup);
}
END_TEST

START_TEST(secret_is_not_in_the_message)
{
    kafka_mock_start(&kafka_setup, 1);
    kafka_property("ssl.key.pem", "canary");
    kafka_property("sasl.password", "canary");
    kafka_property("security.protocol", "ssl");
    struct error err = {0};
    struct sink *sink = sink_open(&sink_kafka, "kafka", kafka_setup.settings, &err);
    ck_assert_ptr_null(strstr(err.text, "canary"));
    sink_close(sink);
    kafka_mock_stop(&kafka_setup);
}
END_TEST

/* ---- a real cluster ---- */

static char real_name[] = "bootstrap.servers";
static struct setting_pair real_pair = {.name = real_name};
static struct kafka_settings real_settings = {
    .properties = {&real_pair, 1}, .down_after_us = 2 * SECOND_US, .key_batches = true};
static struct contract_setup real_setup = {.name = "kafka_real", .type = &sink_kafka, .settings = &real_settings};

static bool real_cluster(void)
{
    real_pair.value = getenv("KAFKA_BOOTSTRAP");
    real_setup.destination = getenv("KAFKA_TOPIC") ? getenv("KAFKA_TOPIC") : "contract";
    return real_pair.value != NULL;
}

static TCase *kafka_tcase(void)
{
    TCase *tcase = tcase_create("kafka_records");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, record_the_broker_refuses_is_rejected, 0, 2);
    tcase_add_test(tcase, neighbours_of_a_refused_record_in_its_batch_are_delivered);
    tcase_add_test(tcase, event_larger_than_message_max_bytes_is_rejected_with_its_size);
    tcase_add_test(tcase, topic_name_that_cannot_be_is_the_events_fault);
    tcase_add_test(tcase, headers_that_are_no_object_are_the_events_fault);
    tcase_add_test(tcase, missing_topic_stops_the_route_and_goes_on_when_it_is_created);
    tcase_add_test(tcase, topic_that_may_not_be_written_stops_the_route_and_goes_on_when_allowed);
    tcase_add_loop_test(tcase, passing_broker_errors_are_not_seen, 0, 4);
    tcase_add_test(tcase, ack_without_an_offset_is_none);
    tcase_add_loop_test(tcase, failure_at_any_place_of_a_key_keeps_its_order, 0, 5);
    tcase_add_test(tcase, full_queue_is_a_short_count);
    tcase_add_loop_test(tcase, wrong_property_is_named, 0, (int)(sizeof bad_properties / sizeof bad_properties[0]));
    tcase_add_test(tcase, secret_is_not_in_the_message);
    return tcase;
}

int main(void)
{
    Suite *suite = suite_create("kafka");
    suite_add_tcase(suite, contract_tcase(&kafka_setup));
    suite_add_tcase(suite, kafka_tcase());
    if (real_cluster())
        suite_add_tcase(suite, contract_tcase(&real_setup));
    return run_suite(suite);
}
