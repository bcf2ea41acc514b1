/* The Kafka sink against librdkafka's mock cluster: scripted faults, no server. With KAFKA_BOOTSTRAP in the environment
 * the common suite also runs against that cluster, whose topic KAFKA_TOPIC (default "contract") must exist. */
#include "relay/base/arena.h"
#include "sinks/kafka_conf.h"
#include "tests/contract/sink_contract.h"

#include <librdkafka/rdkafka_mock.h>
#include <stdlib.h>
#include <unistd.h>

#define TOPIC "orders"
#define PATIENCE_MS 10000

/* Kafka's numbers for requests, which the mock is scripted with. */
enum { REQUEST_PRODUCE = 0, REQUEST_METADATA = 3, REQUEST_INIT_PRODUCER_ID = 22 };

extern const struct sink_type sink_kafka;

/* ---- the mock ---- */

static rd_kafka_t *host; /* the mock lives in a client of its own, so that it outlives the sink's producers */
static rd_kafka_mock_cluster_t *mock;
static struct setting_pair pairs[4];
static struct kafka_settings settings;

static void mock_start_with(struct contract_setup *setup, int brokers)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "log_level", "0", NULL, 0);
    host = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    ck_assert_msg(host != NULL, "%s", text);
    mock = rd_kafka_mock_cluster_new(host, brokers);
    ck_assert_ptr_nonnull(mock);
    ck_assert_int_eq(rd_kafka_mock_topic_create(mock, TOPIC, 4, 1), RD_KAFKA_RESP_ERR_NO_ERROR);
    pairs[0] = (struct setting_pair){"bootstrap.servers", memory_text(rd_kafka_mock_cluster_bootstraps(mock))};
    settings = (struct kafka_settings){
        .properties = {pairs, 1},
          .down_after_us = SECOND_US
    };
    setup->settings = &settings;
    setup->destination = TOPIC;
}

static void mock_start(struct contract_setup *setup)
{
    mock_start_with(setup, 1);
}

static void mock_stop(struct contract_setup *setup)
{
    (void)setup;
    free(pairs[0].value);
    rd_kafka_mock_cluster_destroy(mock);
    rd_kafka_destroy(host);
}

static struct contract_setup setup = {.name = "kafka", .type = &sink_kafka, .start = mock_start, .stop = mock_stop};

static void property(const char *name, const char *value)
{
    size_t n = settings.properties.count++;
    ck_assert_uint_lt(n, sizeof pairs / sizeof pairs[0]);
    pairs[n] = (struct setting_pair){(char *)(uintptr_t)name, (char *)(uintptr_t)value};
}

static void refuse_produce(rd_kafka_resp_err_t code, int times)
{
    for (int i = 0; i < times; i++)
        rd_kafka_mock_push_request_errors(mock, REQUEST_PRODUCE, 1, code);
}

static void verdict_is(const struct delivery *d, enum verdict verdict, enum error_kind kind)
{
    ck_assert_msg(d->verdict == verdict && (d->cause ? d->cause->kind : ERROR_NONE) == kind, "%s, %s: %s",
                  verdict_name(d->verdict), error_kind_name(d->cause ? d->cause->kind : ERROR_NONE),
                  d->cause ? d->cause->text : "");
}

static void text_has(const struct delivery *d, const char *part)
{
    ck_assert_ptr_nonnull(d->cause);
    ck_assert_msg(strstr(d->cause->text, part) != NULL, "\"%s\" is not in: %s", part, d->cause->text);
}

static struct contract *begin(void)
{
    mock_start(&setup);
    return contract_open(&setup);
}

static void end(struct contract *c)
{
    contract_end(c);
    mock_stop(&setup);
}

/* Everything there is to set up (connection, producer id, metadata) has happened. */
static void warm_up(struct contract *c)
{
    struct delivery *d = contract_add(c, NULL, span_of("warm"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_ACKED, ERROR_NONE);
}

/* ---- whose fault it is ---- */

START_TEST(record_the_broker_refuses_is_rejected)
{
    static const rd_kafka_resp_err_t codes[] = {RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR_INVALID_RECORD};
    struct contract *c = begin();
    warm_up(c);
    refuse_produce(codes[_i], 2); /* in its batch, and alone */
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_REJECTED, ERROR_REFUSED);
    text_has(d, TOPIC);
    end(c);
}
END_TEST

START_TEST(neighbours_of_a_refused_record_in_its_batch_are_delivered)
{
    mock_start(&setup);
    property("linger.ms", "200");
    rd_kafka_mock_topic_create(mock, "one", 1, 1);
    setup.destination = "one";
    struct contract *c = contract_open(&setup);
    warm_up(c);
    for (int i = 0; i < 10; i++)
        contract_add(c, arena_printf(c->arena, "key-%d", i), span_of("x"));
    refuse_produce(RD_KAFKA_RESP_ERR_INVALID_RECORD, 2); /* the batch of ten, then the first alone */
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_REJECTED), 1);
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 10);
    end(c);
}
END_TEST

START_TEST(event_larger_than_message_max_bytes_is_rejected_with_its_size)
{
    mock_start(&setup);
    property("message.max.bytes", "2000");
    struct contract *c = contract_open(&setup);
    char *large = arena_alloc(c->arena, 3000);
    memset(large, 'x', 3000);
    struct delivery *d = contract_add(c, "a", (struct span){large, 3000});
    struct delivery *good = contract_add(c, "b", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_REJECTED, ERROR_REFUSED);
    text_has(d, "the event has 3001 bytes, more than message.max.bytes 2000");
    verdict_is(good, VERDICT_ACKED, ERROR_NONE);
    end(c);
}
END_TEST

START_TEST(topic_name_that_cannot_be_is_the_events_fault)
{
    static const struct {
        const char *topic, *text;
    } cases[] = {
        {"",            "empty"               },
        {"a b",         "byte 0x20 at place 2"},
        {"..",          "\"..\""              },
        {"caf\xc3\xa9", "byte 0xc3"           }
    };
    struct contract *c = begin();
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
    end(c);
}
END_TEST

START_TEST(headers_that_are_no_object_are_the_events_fault)
{
    static const char *const bad[] = {"[1]", "{\"a\":", "\"secret-canary\""};
    struct contract *c = begin();
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
    end(c);
}
END_TEST

START_TEST(missing_topic_stops_the_route_and_goes_on_when_it_is_created)
{
    struct contract *c = begin();
    warm_up(c);
    rd_kafka_mock_topic_set_error(mock, "later", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART); /* it creates all others */
    struct delivery *d = contract_add(c, "a", span_of("x"));
    d->destination = span_of("later");
    struct delivery *other = contract_add(c, "b", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_RETRY, ERROR_ROUTE);
    text_has(d, "later");
    verdict_is(other, VERDICT_ACKED, ERROR_NONE);
    ck_assert_int_eq(contract_probe(c, "later", PATIENCE_MS), REACH_NO);
    ck_assert_int_eq(contract_probe(c, TOPIC, PATIENCE_MS), REACH_YES);

    rd_kafka_mock_topic_set_error(mock, "later", RD_KAFKA_RESP_ERR_NO_ERROR);
    ck_assert_int_eq(contract_probe(c, "later", PATIENCE_MS), REACH_YES);
    struct delivery *again = contract_add(c, "c", span_of("x"));
    again->destination = span_of("later");
    ck_assert(contract_run(c, 3000));
    verdict_is(again, VERDICT_ACKED, ERROR_NONE);
    end(c);
}
END_TEST

START_TEST(topic_that_may_not_be_written_stops_the_route_and_goes_on_when_allowed)
{
    struct contract *c = begin();
    warm_up(c);
    refuse_produce(RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, 1);
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_RETRY, ERROR_ROUTE);
    struct delivery *again = contract_add(c, "b", span_of("x"));
    ck_assert_int_eq(contract_probe(c, TOPIC, PATIENCE_MS), REACH_YES);
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(again, VERDICT_ACKED, ERROR_NONE);
    end(c);
}
END_TEST

/* ---- retries inside the library ---- */

START_TEST(passing_broker_errors_are_not_seen)
{
    static const rd_kafka_resp_err_t codes[] = {RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
                                                RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
                                                RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, RD_KAFKA_RESP_ERR__TRANSPORT};
    struct contract *c = begin();
    warm_up(c);
    refuse_produce(codes[_i], 2);
    for (int i = 0; i < 20; i++)
        contract_add(c, arena_printf(c->arena, "key-%d", i), span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), c->count);
    end(c);
}
END_TEST

START_TEST(failure_at_any_place_of_a_key_keeps_its_order)
{
    struct contract *c = begin();
    warm_up(c);
    /* One request each for those before it; then refused in its batch and alone. */
    static const rd_kafka_resp_err_t script[5] = {RD_KAFKA_RESP_ERR_NO_ERROR};
    rd_kafka_mock_push_request_errors_array(mock, REQUEST_PRODUCE, (size_t)_i, script);
    refuse_produce(RD_KAFKA_RESP_ERR_INVALID_RECORD, 2);
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
    end(c);
}
END_TEST

START_TEST(full_queue_is_a_short_count)
{
    mock_start(&setup);
    property("queue.buffering.max.messages", "10");
    struct contract *c = contract_open(&setup);
    for (int i = 0; i < 100; i++)
        contract_add(c, NULL, span_of("x"));
    ck_assert_uint_eq(contract_submit(c), 10);
    ck_assert_uint_eq(contract_submit(c), 0);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 100);
    end(c);
}
END_TEST

/* ---- outages ---- */

START_TEST(outage_gives_everything_back_quickly_and_recovers)
{
    mock_start_with(&setup, _i);
    struct contract *c = contract_open(&setup);
    warm_up(c);
    for (int b = 1; b <= _i; b++)
        rd_kafka_mock_broker_set_down(mock, b);
    for (int i = 0; i < 200; i++)
        contract_add(c, arena_printf(c->arena, "key-%d", i), span_of("x"));
    instant_us before = clock_now();
    ck_assert(contract_run(c, PATIENCE_MS));
    int64_t took_us = clock_now() - before;
    ck_assert_msg(took_us < 5 * SECOND_US, "gave up after %lld ms", (long long)(took_us / MS_US));
    for (size_t i = 1; i < c->count; i++) {
        ck_assert_int_ne(c->ds[i]->verdict, VERDICT_ACKED);
        ck_assert_int_ne(c->ds[i]->verdict, VERDICT_REJECTED);
        ck_assert_int_eq(c->ds[i]->cause->kind, ERROR_UNREACHABLE);
    }
    ck_assert_int_eq(contract_probe(c, TOPIC, PATIENCE_MS), REACH_NO);

    for (int b = 1; b <= _i; b++)
        rd_kafka_mock_broker_set_up(mock, b);
    before = clock_now();
    while (contract_probe(c, TOPIC, PATIENCE_MS) != REACH_YES)
        ck_assert_int_lt(clock_now() - before, 5 * SECOND_US);
    struct delivery *d = contract_add(c, "back", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_ACKED, ERROR_NONE);
    took_us = clock_now() - before;
    ck_assert_msg(took_us < 5 * SECOND_US, "back after %lld ms", (long long)(took_us / MS_US));
    end(c);
}
END_TEST

START_TEST(no_broker_at_start_is_an_outage_like_any_other)
{
    mock_start(&setup);
    free(pairs[0].value);
    pairs[0].value = memory_text("127.0.0.1:1");
    struct contract *c = contract_open(&setup);
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, 5000));
    verdict_is(d, VERDICT_RETRY, ERROR_UNREACHABLE);
    text_has(d, "Connection refused");
    ck_assert_int_eq(contract_probe(c, TOPIC, PATIENCE_MS), REACH_NO);
    end(c);
}
END_TEST

START_TEST(one_silent_broker_does_not_block_the_loop)
{
    struct contract *c = begin();
    warm_up(c);
    rd_kafka_mock_broker_set_rtt(mock, 1, 700);
    contract_add(c, "a", span_of("x"));
    contract_submit(c);
    while (c->sink->in_flight > 0) {
        instant_us before = clock_now();
        contract_turn(c, 20);
        sink_probe(c->sink, span_of(TOPIC), clock_now());
        ck_assert_int_lt(clock_now() - before, 300 * MS_US);
    }
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), c->count);
    end(c);
}
END_TEST

/* ---- a producer beyond use ---- */

START_TEST(fatal_error_replaces_the_producer)
{
    mock_start(&setup);
    rd_kafka_mock_push_request_errors(mock, REQUEST_INIT_PRODUCER_ID, 1,
                                      RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED);
    struct contract *c = contract_open(&setup);
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, 5000));
    verdict_is(d, VERDICT_RETRY, ERROR_UNREACHABLE);
    text_has(d, "replaced");
    ck_assert_int_eq(contract_probe(c, TOPIC, PATIENCE_MS), REACH_YES);
    struct delivery *again = contract_add(c, "b", span_of("x"));
    ck_assert(contract_run(c, 5000));
    verdict_is(again, VERDICT_ACKED, ERROR_NONE);
    end(c);
}
END_TEST

START_TEST(fatal_error_in_flight_loses_no_verdict)
{
    struct contract *c = begin();
    warm_up(c);
    refuse_produce(RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, 1);
    for (int i = 0; i < 50; i++)
        contract_add(c, arena_printf(c->arena, "key-%d", i), span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_REJECTED), 0);
    struct delivery *again = contract_add(c, "again", span_of("x"));
    for (int i = 0; i < 100 && contract_probe(c, TOPIC, PATIENCE_MS) != REACH_YES; i++)
        ;
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(again, VERDICT_ACKED, ERROR_NONE);
    end(c);
}
END_TEST

/* ---- configuration ---- */

static const struct {
    const char *name, *value, *text;
} bad_properties[] = {
    {"enable.idempotence",         "false",
     "sink kafka: kafka properties: enable.idempotence must be true: without it a retry of librdkafka can reorder and "
     "duplicate events"                                                                     },
    {"delivery.report.only.error", "true",  "delivery.report.only.error must be false"      },
    {"transactional.id",           "x",     "transactional.id is not supported"             },
    {"message.timeout.ms",         "0",     "message.timeout.ms must not be 0"              },
    {"delivery.timeout.ms",        "0",     "message.timeout.ms must not be 0"              },
    {"bootstrap.server",           "x",     "\"bootstrap.server\""                          },
    {"linger.ms",                  "soon",  "sink kafka: kafka properties: linger.ms: "     },
    {"acks",                       "1",     "acks"                                          },
    {"bootstrap.servers",          "",      "bootstrap.servers is missing; give the brokers"},
};

START_TEST(wrong_property_is_named)
{
    mock_start(&setup);
    property(bad_properties[_i].name, bad_properties[_i].value);
    struct error err = {0};
    ck_assert_ptr_null(sink_open(&sink_kafka, "kafka", &settings, &err));
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    ck_assert_msg(strstr(err.text, bad_properties[_i].text) != NULL, "%s", err.text);
    mock_stop(&setup);
}
END_TEST

START_TEST(secret_is_not_in_the_message)
{
    mock_start(&setup);
    property("ssl.key.pem", "canary");
    property("sasl.password", "canary");
    property("security.protocol", "ssl");
    struct error err = {0};
    struct sink *sink = sink_open(&sink_kafka, "kafka", &settings, &err);
    ck_assert_ptr_null(strstr(err.text, "canary"));
    sink_close(sink);
    mock_stop(&setup);
}
END_TEST

/* ---- a real cluster ---- */

static struct setting_pair real_pair;
static struct kafka_settings real_settings = {
    .properties = {&real_pair, 1},
      .down_after_us = 2 * SECOND_US
};
static struct contract_setup real_setup = {.name = "kafka_real", .type = &sink_kafka, .settings = &real_settings};

static bool real_cluster(void)
{
    real_pair = (struct setting_pair){(char *)(uintptr_t) "bootstrap.servers", getenv("KAFKA_BOOTSTRAP")};
    real_setup.destination = getenv("KAFKA_TOPIC") ? getenv("KAFKA_TOPIC") : "contract";
    return real_pair.value != NULL;
}

static TCase *kafka_tcase(void)
{
    TCase *tcase = tcase_create("kafka_faults");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, record_the_broker_refuses_is_rejected, 0, 2);
    tcase_add_test(tcase, neighbours_of_a_refused_record_in_its_batch_are_delivered);
    tcase_add_test(tcase, event_larger_than_message_max_bytes_is_rejected_with_its_size);
    tcase_add_test(tcase, topic_name_that_cannot_be_is_the_events_fault);
    tcase_add_test(tcase, headers_that_are_no_object_are_the_events_fault);
    tcase_add_test(tcase, missing_topic_stops_the_route_and_goes_on_when_it_is_created);
    tcase_add_test(tcase, topic_that_may_not_be_written_stops_the_route_and_goes_on_when_allowed);
    tcase_add_loop_test(tcase, passing_broker_errors_are_not_seen, 0, 4);
    tcase_add_loop_test(tcase, failure_at_any_place_of_a_key_keeps_its_order, 0, 5);
    tcase_add_test(tcase, full_queue_is_a_short_count);
    tcase_add_loop_test(tcase, outage_gives_everything_back_quickly_and_recovers, 1, 4);
    tcase_add_test(tcase, no_broker_at_start_is_an_outage_like_any_other);
    tcase_add_test(tcase, one_silent_broker_does_not_block_the_loop);
    tcase_add_test(tcase, fatal_error_replaces_the_producer);
    tcase_add_test(tcase, fatal_error_in_flight_loses_no_verdict);
    tcase_add_loop_test(tcase, wrong_property_is_named, 0, (int)(sizeof bad_properties / sizeof bad_properties[0]));
    tcase_add_test(tcase, secret_is_not_in_the_message);
    return tcase;
}

int main(void)
{
    Suite *suite = suite_create("kafka");
    suite_add_tcase(suite, contract_tcase(&setup));
    suite_add_tcase(suite, kafka_tcase());
    if (real_cluster())
        suite_add_tcase(suite, contract_tcase(&real_setup));
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
