#include "sinks/kafka/kafka_verdict.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>

#define NOT RD_KAFKA_MSG_STATUS_NOT_PERSISTED
#define MAYBE RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED
#define STORED RD_KAFKA_MSG_STATUS_PERSISTED
#define CODE(name) RD_KAFKA_RESP_ERR_##name

static const struct {
    rd_kafka_resp_err_t code;
    rd_kafka_msg_status_t status;
    enum verdict verdict;
    enum error_kind kind;
    bool whole_batch;
} cases[] = {
    {CODE(NO_ERROR), STORED, VERDICT_ACKED, ERROR_NONE, false},
    {CODE(NO_ERROR), MAYBE, VERDICT_UNKNOWN, ERROR_PROTOCOL, false},
    {CODE(NO_ERROR), NOT, VERDICT_UNKNOWN, ERROR_PROTOCOL, false},

    {CODE(MSG_SIZE_TOO_LARGE), NOT, VERDICT_REJECTED, ERROR_REFUSED, true},
    {CODE(MSG_SIZE_TOO_LARGE), MAYBE, VERDICT_REJECTED, ERROR_REFUSED, true},
    {CODE(INVALID_RECORD), MAYBE, VERDICT_REJECTED, ERROR_REFUSED, true},

    {CODE(UNKNOWN_TOPIC_OR_PART), NOT, VERDICT_RETRY, ERROR_ROUTE, false},
    {CODE(_UNKNOWN_TOPIC), NOT, VERDICT_RETRY, ERROR_ROUTE, false},
    {CODE(TOPIC_AUTHORIZATION_FAILED), NOT, VERDICT_RETRY, ERROR_ROUTE, false},
    {CODE(TOPIC_AUTHORIZATION_FAILED), MAYBE, VERDICT_RETRY, ERROR_ROUTE, false},

    {CODE(_TRANSPORT), NOT, VERDICT_RETRY, ERROR_UNREACHABLE, false},
    {CODE(_TRANSPORT), MAYBE, VERDICT_UNKNOWN, ERROR_UNREACHABLE, false},
    {CODE(_ALL_BROKERS_DOWN), NOT, VERDICT_RETRY, ERROR_UNREACHABLE, false},
    {CODE(_PURGE_QUEUE), NOT, VERDICT_RETRY, ERROR_UNREACHABLE, false},
    {CODE(_PURGE_QUEUE), MAYBE, VERDICT_UNKNOWN, ERROR_UNREACHABLE, false},
    {CODE(_PURGE_INFLIGHT), MAYBE, VERDICT_UNKNOWN, ERROR_UNREACHABLE, false},
    {CODE(_FATAL), NOT, VERDICT_RETRY, ERROR_UNREACHABLE, false},
    {CODE(OUT_OF_ORDER_SEQUENCE_NUMBER), MAYBE, VERDICT_UNKNOWN, ERROR_UNREACHABLE, false},

    {CODE(_MSG_TIMED_OUT), NOT, VERDICT_RETRY, ERROR_TIMEOUT, false},
    {CODE(_MSG_TIMED_OUT), MAYBE, VERDICT_UNKNOWN, ERROR_TIMEOUT, false},
    {CODE(NOT_ENOUGH_REPLICAS), NOT, VERDICT_RETRY, ERROR_OVERLOADED, false},
    {CODE(_QUEUE_FULL), NOT, VERDICT_RETRY, ERROR_OVERLOADED, false},

    /* Nothing is known about these: the event's attempts count, so it cannot circle for ever. */
    {CODE(UNKNOWN), NOT, VERDICT_RETRY, ERROR_PROTOCOL, false},
    {CODE(UNKNOWN), MAYBE, VERDICT_UNKNOWN, ERROR_PROTOCOL, false},
    {(rd_kafka_resp_err_t)9999, NOT, VERDICT_RETRY, ERROR_PROTOCOL, false},
};

START_TEST(code_and_status_decide_the_verdict)
{
    struct kafka_verdict verdict = kafka_verdict_of(cases[_i].code, cases[_i].status);
    ck_assert_str_eq(verdict_name(verdict.verdict), verdict_name(cases[_i].verdict));
    ck_assert_str_eq(error_kind_name(verdict.kind), error_kind_name(cases[_i].kind));
    ck_assert_int_eq(verdict.whole_batch, cases[_i].whole_batch);
}
END_TEST

/* A message that may be in the log is never called retryable, and one with an error is never acked. */
START_TEST(no_code_hides_a_possible_duplicate_or_a_loss)
{
    for (int code = RD_KAFKA_RESP_ERR__BEGIN; code < 200; code++) {
        struct kafka_verdict maybe = kafka_verdict_of((rd_kafka_resp_err_t)code, MAYBE);
        ck_assert_int_ne(maybe.verdict, VERDICT_ACKED);
        ck_assert_int_ne(maybe.verdict, VERDICT_NONE);
        if (maybe.verdict == VERDICT_RETRY)
            ck_assert_int_eq(maybe.kind, ERROR_ROUTE);
        if (code != RD_KAFKA_RESP_ERR_NO_ERROR)
            ck_assert_int_ne(kafka_verdict_of((rd_kafka_resp_err_t)code, STORED).verdict, VERDICT_ACKED);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kafka_verdict");
    TCase *tcase = tcase_create("kafka_verdict");
    tcase_add_loop_test(tcase, code_and_status_decide_the_verdict, 0, (int)(sizeof cases / sizeof cases[0]));
    tcase_add_test(tcase, no_code_hides_a_possible_duplicate_or_a_loss);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
