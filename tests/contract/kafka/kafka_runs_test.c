/* Several events of one key at once, against librdkafka's mock cluster, which does not look at sequence numbers: what
 * keeps the order here keeps it with any broker. */
#include "relay/base/arena.h"
#include "sinks/kafka/kafka_conf.h"
#include "tests/contract/kafka/kafka_mock.h"
#include "tests/support/run_suite.h"

#include <stdlib.h>

#define ONE "one" /* a topic of one partition */
#define LOG_MAX 2000

static struct contract *begin_with(const char *property, const char *value)
{
    kafka_mock_start(&kafka_setup, 1);
    if (property)
        kafka_property(property, value);
    rd_kafka_mock_topic_create(kafka_mock, ONE, 1, 1);
    kafka_setup.destination = ONE;
    return contract_open(&kafka_setup);
}

/* Until a run is taken as one: the topic is known by then. Returns how many events there are. */
static size_t warm_up_runs(struct contract *c)
{
    instant_us deadline = clock_now() + PATIENCE_MS * MS_US;
    for (bool whole = false; !whole;) {
        ck_assert_int_lt(clock_now(), deadline);
        contract_add_run(c, "warm", 2);
        whole = contract_submit(c) == 2;
        ck_assert(contract_run(c, PATIENCE_MS));
        contract_turn(c, 20);
    }
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), c->count);
    return c->count;
}

/* Of the events from place `from` on, all of one key: an acked prefix, and the log has each of these in order before
 * anything that was not acked. */
static size_t acked_prefix(const struct contract *c, size_t from)
{
    size_t acked = from;
    while (acked < c->count && c->ds[acked]->verdict == VERDICT_ACKED)
        acked++;
    for (size_t i = acked; i < c->count; i++)
        ck_assert_msg(c->ds[i]->verdict != VERDICT_ACKED, "event %zu was acked, %zu was not", i + 1, acked + 1);
    return acked - from;
}

/* Each event in the log came after every smaller one. */
static void log_is_in_order(int64_t last)
{
    static int64_t ids[LOG_MAX];
    size_t n = kafka_mock_read(ONE, ids, LOG_MAX);
    int64_t high = 0;
    for (size_t i = 0; i < n; i++) {
        ck_assert_msg(ids[i] <= high + 1, "%lld came before %lld", (long long)ids[i], (long long)high + 1);
        high = ids[i] > high ? ids[i] : high;
    }
    ck_assert_int_ge(high, last);
}

START_TEST(run_is_taken_as_one)
{
    struct contract *c = begin_with(NULL, NULL);
    size_t before = warm_up_runs(c);
    contract_add_run(c, "a", 500);
    ck_assert_uint_eq(contract_submit(c), 500);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), before + 500);
    log_is_in_order((int64_t)before + 500);
    kafka_end(c);
}
END_TEST

START_TEST(first_run_of_a_topic_begins_with_one_event)
{
    struct contract *c = begin_with(NULL, NULL);
    contract_add_run(c, "a", 10);
    ck_assert_uint_eq(contract_submit(c), 1);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 10);
    log_is_in_order(10);
    kafka_end(c);
}
END_TEST

static const struct {
    const char *name, *value;
} small_batches[] = {{"batch.num.messages", "10"}, {"batch.size", "4096"}, {"message.max.bytes", "4096"}};

START_TEST(run_longer_than_a_batch_arrives_in_order)
{
    struct contract *c = begin_with(small_batches[_i].name, small_batches[_i].value);
    size_t before = warm_up_runs(c);
    contract_add_run(c, "a", 95);
    contract_add_run(c, "b", 5);
    ck_assert_uint_eq(contract_submit(c), 100);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), before + 100);
    log_is_in_order((int64_t)before + 100);
    kafka_end(c);
}
END_TEST

static const rd_kafka_resp_err_t refusals[] = {
    RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
    RD_KAFKA_RESP_ERR_INVALID_RECORD,
    RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
    RD_KAFKA_RESP_ERR_POLICY_VIOLATION,
    RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER,
    RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
    RD_KAFKA_RESP_ERR_DUPLICATE_SEQUENCE_NUMBER, /* which librdkafka takes for success */
    RD_KAFKA_RESP_ERR_UNKNOWN,
};

#define REFUSALS ((int)(sizeof refusals / sizeof refusals[0]))

/* Three batches of ten; one of them is refused, and what is behind it must not arrive. */
START_TEST(refused_batch_stops_the_run_where_it_is)
{
    size_t refused = (size_t)_i % 3;
    rd_kafka_resp_err_t code = refusals[_i / 3];
    struct contract *c = begin_with("batch.num.messages", "10");
    size_t before = warm_up_runs(c);
    static const rd_kafka_resp_err_t fine[3] = {RD_KAFKA_RESP_ERR_NO_ERROR};
    rd_kafka_mock_push_request_errors_array(kafka_mock, 0 /* produce */, refused, fine);
    kafka_refuse_produce(code, 2); /* in its batch, and the first of it alone */
    contract_add_run(c, "a", 30);
    ck_assert_uint_eq(contract_submit(c), 30);
    ck_assert(contract_drain(c, PATIENCE_MS));
    size_t acked = acked_prefix(c, before);
    ck_assert_msg(acked == refused * 10, "%s: %zu acked", rd_kafka_err2name(code), acked);
    for (size_t i = before + acked + 1; i < c->count; i++)
        ck_assert_int_eq(c->ds[i]->cause->kind, ERROR_BYSTANDER);
    log_is_in_order((int64_t)(before + acked));
    kafka_end(c);
}
END_TEST

static const rd_kafka_resp_err_t passing[] = {RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
                                              RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
                                              RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, RD_KAFKA_RESP_ERR__TRANSPORT};

START_TEST(passing_errors_are_not_seen_and_keep_the_order)
{
    struct contract *c = begin_with("batch.num.messages", "10");
    size_t before = warm_up_runs(c);
    kafka_refuse_produce(passing[_i], 2);
    contract_add_run(c, "a", 30);
    ck_assert_uint_eq(contract_submit(c), 30);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(acked_prefix(c, before), 30);
    log_is_in_order((int64_t)before + 30);
    kafka_end(c);
}
END_TEST

START_TEST(event_that_cannot_be_sent_ends_its_run_there)
{
    struct contract *c = begin_with("message.max.bytes", "2000");
    size_t before = warm_up_runs(c);
    contract_add_run(c, "a", 4);
    contract_add(c, "b", span_of("{}"));
    char *large = arena_alloc(c->arena, 3000);
    memset(large, 'x', 3000);
    struct event *third = contract_event(c->ds[before + 2]);
    if (_i == 0)
        third->payload = (struct span){large, 3000};
    else
        third->headers = span_of("[1]");
    contract_submit(c);
    ck_assert(contract_drain(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[before + 1]->verdict, VERDICT_ACKED);
    verdict_is(c->ds[before + 2], VERDICT_REJECTED, ERROR_REFUSED);
    text_has(c->ds[before + 2], _i == 0 ? "more than message.max.bytes 2000" : "headers");
    verdict_is(c->ds[before + 3], VERDICT_RETRY, ERROR_BYSTANDER);
    verdict_is(c->ds[before + 4], VERDICT_ACKED, ERROR_NONE);
    kafka_end(c);
}
END_TEST

START_TEST(neighbours_of_a_refused_run_are_sent_alone_or_given_back)
{
    struct contract *c = begin_with(NULL, NULL);
    size_t before = warm_up_runs(c);
    contract_add_run(c, "a", 3);
    contract_add_run(c, "b", 3);
    kafka_refuse_produce(RD_KAFKA_RESP_ERR_INVALID_RECORD, 2); /* the batch, then the first of it alone */
    ck_assert_uint_eq(contract_submit(c), 6);
    ck_assert(contract_drain(c, PATIENCE_MS));
    size_t alone = 0;
    for (size_t i = before; i < c->count; i += 3) {
        alone += c->ds[i]->verdict == VERDICT_ACKED;
        verdict_is(c->ds[i + 1], VERDICT_RETRY, ERROR_BYSTANDER);
        verdict_is(c->ds[i + 2], VERDICT_RETRY, ERROR_BYSTANDER);
    }
    ck_assert_uint_eq(alone, 1);
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_REJECTED), 1);
    kafka_end(c);
}
END_TEST

START_TEST(batch_without_an_answer_is_given_up_in_time)
{
    struct contract *c = begin_with("message.timeout.ms", "1500");
    size_t before = warm_up_runs(c);
    rd_kafka_mock_broker_set_rtt(kafka_mock, 1, 700); /* metadata comes in time, the ack after three of these */
    kafka_refuse_produce(RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, 100);
    contract_add_run(c, "a", 30);
    ck_assert_uint_eq(contract_submit(c), 30);
    ck_assert(contract_drain(c, 10000));
    verdict_is(c->ds[before], VERDICT_UNKNOWN, ERROR_TIMEOUT);
    for (size_t i = before + 1; i < c->count; i++)
        verdict_is(c->ds[i], VERDICT_UNKNOWN, ERROR_BYSTANDER);
    rd_kafka_mock_clear_request_errors(kafka_mock, 0);
    rd_kafka_mock_broker_set_rtt(kafka_mock, 1, 0);
    contract_add_run(c, "b", 5);
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(c->ds[c->count - 1], VERDICT_ACKED, ERROR_NONE);
    kafka_end(c);
}
END_TEST

START_TEST(outage_gives_runs_back_and_loses_none)
{
    struct contract *c = begin_with(NULL, NULL);
    size_t before = warm_up_runs(c);
    rd_kafka_mock_broker_set_down(kafka_mock, 1);
    contract_add_run(c, "a", 30);
    contract_add_run(c, "b", 30);
    ck_assert_uint_eq(contract_submit(c), 60);
    ck_assert(contract_drain(c, 5000));
    for (size_t i = before; i < c->count; i++) {
        ck_assert_int_ne(c->ds[i]->verdict, VERDICT_ACKED);
        ck_assert_int_ne(c->ds[i]->verdict, VERDICT_REJECTED);
    }
    ck_assert_int_eq(c->ds[before]->cause->kind, ERROR_UNREACHABLE);
    rd_kafka_mock_broker_set_up(kafka_mock, 1);
    while (contract_probe(c, ONE, PATIENCE_MS) != REACH_YES)
        ;
    contract_add_run(c, "c", 5);
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(c->ds[c->count - 1], VERDICT_ACKED, ERROR_NONE);
    kafka_end(c);
}
END_TEST

START_TEST(topic_that_is_not_there_stops_its_route)
{
    struct contract *c = begin_with(NULL, NULL);
    warm_up_runs(c);
    rd_kafka_mock_topic_set_error(kafka_mock, "later", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    size_t before = c->count;
    kafka_setup.destination = "later";
    contract_add_run(c, "a", 5);
    ck_assert_uint_eq(contract_submit(c), 1);
    ck_assert(contract_drain(c, PATIENCE_MS));
    verdict_is(c->ds[before], VERDICT_RETRY, ERROR_ROUTE);
    kafka_end(c);
}
END_TEST

START_TEST(keys_that_have_no_partition_of_their_own_go_one_at_a_time)
{
    struct contract *c = begin_with("partitioner", "consistent_random"); /* an empty key goes anywhere */
    warm_up_runs(c);
    contract_add_run(c, "", 5);
    ck_assert_uint_eq(contract_submit(c), 1);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), c->count);
    kafka_end(c);
}
END_TEST

START_TEST(without_key_batches_there_are_no_runs)
{
    kafka_mock_start(&kafka_setup, 1);
    struct kafka_settings settings = *(const struct kafka_settings *)kafka_setup.settings;
    settings.key_batches = false;
    kafka_setup.settings = &settings;
    struct contract *c = contract_open(&kafka_setup);
    ck_assert_uint_eq(c->sink->traits, 0);
    contract_end(c);
    kafka_mock_stop(&kafka_setup);
}
END_TEST

START_TEST(close_answers_for_runs_on_their_way)
{
    struct contract *c = begin_with("batch.num.messages", "10");
    size_t before = warm_up_runs(c);
    rd_kafka_mock_broker_set_rtt(kafka_mock, 1, 10000);
    contract_add_run(c, "a", 100);
    ck_assert_uint_eq(contract_submit(c), 100);
    for (int i = 0; i < 10 * _i; i++)
        contract_turn(c, 10);
    contract_close_us(c);
    for (size_t i = before; i < c->count; i++)
        ck_assert_int_ne(c->ds[i]->verdict, VERDICT_ACKED);
    kafka_end(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kafka_runs");
    TCase *tcase = tcase_create("kafka_runs");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, run_is_taken_as_one);
    tcase_add_test(tcase, first_run_of_a_topic_begins_with_one_event);
    tcase_add_loop_test(tcase, run_longer_than_a_batch_arrives_in_order, 0, 3);
    tcase_add_loop_test(tcase, refused_batch_stops_the_run_where_it_is, 0, 3 * REFUSALS);
    tcase_add_loop_test(tcase, passing_errors_are_not_seen_and_keep_the_order, 0, 4);
    tcase_add_loop_test(tcase, event_that_cannot_be_sent_ends_its_run_there, 0, 2);
    tcase_add_test(tcase, neighbours_of_a_refused_run_are_sent_alone_or_given_back);
    tcase_add_test(tcase, batch_without_an_answer_is_given_up_in_time);
    tcase_add_test(tcase, outage_gives_runs_back_and_loses_none);
    tcase_add_test(tcase, topic_that_is_not_there_stops_its_route);
    tcase_add_test(tcase, keys_that_have_no_partition_of_their_own_go_one_at_a_time);
    tcase_add_test(tcase, without_key_batches_there_are_no_runs);
    tcase_add_loop_test(tcase, close_answers_for_runs_on_their_way, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
