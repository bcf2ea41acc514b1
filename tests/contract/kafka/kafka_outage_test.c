/* The Kafka sink against librdkafka's mock cluster: brokers that go away, hang, or end the producer. */
#include "relay/base/arena.h"
#include "tests/contract/kafka/kafka_mock.h"
#include "tests/support/run_suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define REQUEST_INIT_PRODUCER_ID 22 /* Kafka's number for it */

/* ---- outages ---- */

START_TEST(outage_gives_everything_back_quickly_and_recovers)
{
    kafka_mock_start(&kafka_setup, _i);
    struct contract *c = contract_open(&kafka_setup);
    kafka_warm_up(c);
    for (int b = 1; b <= _i; b++)
        rd_kafka_mock_broker_set_down(kafka_mock, b);
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
    ck_assert_int_eq(contract_probe(c, "", PATIENCE_MS), REACH_NO); /* the cluster as a whole */

    for (int b = 1; b <= _i; b++)
        rd_kafka_mock_broker_set_up(kafka_mock, b);
    before = clock_now();
    while (contract_probe(c, TOPIC, PATIENCE_MS) != REACH_YES)
        ck_assert_int_lt(clock_now() - before, 5 * SECOND_US);
    ck_assert_int_eq(contract_probe(c, "", PATIENCE_MS), REACH_YES);
    struct delivery *d = contract_add(c, "back", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_ACKED, ERROR_NONE);
    took_us = clock_now() - before;
    ck_assert_msg(took_us < 5 * SECOND_US, "back after %lld ms", (long long)(took_us / MS_US));
    kafka_end(c);
}
END_TEST

START_TEST(hanging_broker_is_an_outage_too)
{
    struct contract *c = kafka_begin();
    kafka_warm_up(c);
    rd_kafka_mock_broker_set_rtt(kafka_mock, 1, 20000); /* connections stay up, nothing is answered */
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, 6000));
    verdict_is(d, VERDICT_UNKNOWN, ERROR_UNREACHABLE);
    text_has(d, "no answer to a request for metadata");
    ck_assert_int_eq(contract_probe(c, TOPIC, PATIENCE_MS), REACH_NO);
    rd_kafka_mock_broker_set_rtt(kafka_mock, 1, 0);
    instant_us before = clock_now();
    while (contract_probe(c, TOPIC, PATIENCE_MS) != REACH_YES)
        ck_assert_int_lt(clock_now() - before, 30 * SECOND_US);
    kafka_end(c);
}
END_TEST

/* All brokers go away while nothing is sent, and the producer hears of it. */
static struct contract *begin_with_a_quiet_outage(void)
{
    struct contract *c = kafka_begin();
    kafka_warm_up(c);
    rd_kafka_mock_broker_set_down(kafka_mock, 1);
    while (contract_probe(c, TOPIC, PATIENCE_MS) == REACH_YES)
        ;
    return c;
}

START_TEST(outage_that_was_over_before_the_event_shortens_no_limit)
{
    struct contract *c = begin_with_a_quiet_outage();
    rd_kafka_mock_broker_set_up(kafka_mock, 1);
    while (contract_probe(c, TOPIC, PATIENCE_MS) != REACH_YES)
        ;
    rd_kafka_mock_broker_set_rtt(kafka_mock, 1, 1500); /* more than down_after, less than twice that */
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_ACKED, ERROR_NONE);
    kafka_end(c);
}
END_TEST

START_TEST(outage_that_began_before_the_event_gives_it_back_quickly)
{
    struct contract *c = begin_with_a_quiet_outage();
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, 5000));
    ck_assert_int_ne(d->verdict, VERDICT_ACKED);
    ck_assert_int_eq(d->cause->kind, ERROR_UNREACHABLE);
    kafka_end(c);
}
END_TEST

START_TEST(no_broker_at_start_is_an_outage_like_any_other)
{
    kafka_mock_start(&kafka_setup, 1);
    kafka_property("bootstrap.servers", "127.0.0.1:1");
    struct contract *c = contract_open(&kafka_setup);
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, 5000));
    verdict_is(d, VERDICT_RETRY, ERROR_UNREACHABLE);
    text_has(d, "Connection refused");
    ck_assert_int_eq(contract_probe(c, TOPIC, PATIENCE_MS), REACH_NO);
    kafka_end(c);
}
END_TEST

START_TEST(slow_broker_does_not_block_the_loop)
{
    struct contract *c = kafka_begin();
    kafka_warm_up(c);
    rd_kafka_mock_broker_set_rtt(kafka_mock, 1, 700);
    contract_add(c, "a", span_of("x"));
    contract_submit(c);
    while (c->sink->in_flight > 0) {
        instant_us before = clock_now();
        contract_turn(c, 20);
        sink_probe(c->sink, span_of(TOPIC), clock_now(), &c->unreached);
        ck_assert_int_lt(clock_now() - before, 300 * MS_US);
    }
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), c->count);
    kafka_end(c);
}
END_TEST

/* ---- a producer beyond use ---- */

START_TEST(fatal_error_replaces_the_producer)
{
    kafka_mock_start(&kafka_setup, 1);
    rd_kafka_mock_push_request_errors(kafka_mock, REQUEST_INIT_PRODUCER_ID, 1,
                                      RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED);
    struct contract *c = contract_open(&kafka_setup);
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, 5000));
    verdict_is(d, VERDICT_RETRY, ERROR_UNREACHABLE);
    text_has(d, "replaced");
    ck_assert_int_eq(contract_probe(c, TOPIC, PATIENCE_MS), REACH_YES);
    struct delivery *again = contract_add(c, "b", span_of("x"));
    ck_assert(contract_run(c, 5000));
    verdict_is(again, VERDICT_ACKED, ERROR_NONE);
    kafka_end(c);
}
END_TEST

START_TEST(fatal_error_in_flight_loses_no_verdict)
{
    struct contract *c = kafka_begin();
    kafka_warm_up(c);
    kafka_refuse_produce(RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, 1);
    for (int i = 0; i < 50; i++)
        contract_add(c, arena_printf(c->arena, "key-%d", i), span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_REJECTED), 0);
    struct delivery *again = contract_add(c, "again", span_of("x"));
    for (int i = 0; i < 100 && contract_probe(c, TOPIC, PATIENCE_MS) != REACH_YES; i++)
        ;
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(again, VERDICT_ACKED, ERROR_NONE);
    kafka_end(c);
}
END_TEST

/* Every 20 ms, until it is told of the file, or of something else. */
static void probe_until(struct contract *c, bool of_the_file)
{
    instant_us end = clock_now() + 20 * SECOND_US;
    while (contract_probe(c, "", PATIENCE_MS) != REACH_NO ||
           of_the_file != (strstr(c->unreached.text, "ssl.ca.location") != NULL)) {
        ck_assert_msg(clock_now() < end, "%s", c->unreached.text);
        contract_turn(c, 20);
    }
}

/* Its producer was given up, as its cluster was not there, and the next one does not come about. */
START_TEST(probe_says_why_there_is_no_producer)
{
    static const char real[] = "/etc/ssl/certs/ca-certificates.crt";
    char ca[64];
    snprintf(ca, sizeof ca, "/tmp/pgcourier-ca.%d", (int)getpid());
    ck_assert_int_eq(symlink(real, ca), 0);
    kafka_mock_start(&kafka_setup, 1);
    kafka_property("security.protocol", "ssl"); /* which the mock does not speak */
    kafka_property("ssl.ca.location", ca);
    struct contract *c = contract_open(&kafka_setup);
    ck_assert_int_eq(unlink(ca), 0);
    struct delivery *d = contract_add(c, "a", span_of("x"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_RETRY, ERROR_UNREACHABLE);
    probe_until(c, true);
    ck_assert_msg(strstr(c->unreached.text, ca) != NULL, "%s", c->unreached.text);

    ck_assert_int_eq(symlink(real, ca), 0);
    probe_until(c, false);
    ck_assert_int_eq(unlink(ca), 0);
    kafka_end(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kafka_outage");
    TCase *tcase = tcase_create("kafka_outage");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, outage_gives_everything_back_quickly_and_recovers, 1, 4);
    tcase_add_test(tcase, hanging_broker_is_an_outage_too);
    tcase_add_test(tcase, outage_that_was_over_before_the_event_shortens_no_limit);
    tcase_add_test(tcase, outage_that_began_before_the_event_gives_it_back_quickly);
    tcase_add_test(tcase, no_broker_at_start_is_an_outage_like_any_other);
    tcase_add_test(tcase, slow_broker_does_not_block_the_loop);
    tcase_add_test(tcase, fatal_error_replaces_the_producer);
    tcase_add_test(tcase, fatal_error_in_flight_loses_no_verdict);
    tcase_add_test(tcase, probe_says_why_there_is_no_producer);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
