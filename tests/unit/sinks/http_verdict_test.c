#include "sinks/http/http_verdict.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

/* Every status from 100 to 599 that is not the plain case of its hundred. */
static const struct {
    int first, last;
    enum verdict verdict;
    enum error_kind kind;
} expected[] = {
    {100, 199, VERDICT_UNKNOWN, ERROR_ROUTE},      {200, 299, VERDICT_ACKED, ERROR_NONE},
    {300, 399, VERDICT_RETRY, ERROR_ROUTE},        {400, 400, VERDICT_REJECTED, ERROR_REFUSED},
    {401, 401, VERDICT_RETRY, ERROR_ROUTE},        {402, 402, VERDICT_REJECTED, ERROR_REFUSED},
    {403, 403, VERDICT_RETRY, ERROR_OVERLOADED},   {404, 405, VERDICT_RETRY, ERROR_ROUTE},
    {406, 406, VERDICT_REJECTED, ERROR_REFUSED},   {407, 407, VERDICT_RETRY, ERROR_ROUTE},
    {408, 408, VERDICT_RETRY, ERROR_OVERLOADED},   {409, 409, VERDICT_RETRY, ERROR_REFUSED},
    {410, 410, VERDICT_RETRY, ERROR_ROUTE},        {411, 420, VERDICT_REJECTED, ERROR_REFUSED},
    {421, 421, VERDICT_RETRY, ERROR_ROUTE},        {422, 422, VERDICT_REJECTED, ERROR_REFUSED},
    {423, 423, VERDICT_RETRY, ERROR_REFUSED},      {424, 424, VERDICT_REJECTED, ERROR_REFUSED},
    {425, 425, VERDICT_RETRY, ERROR_OVERLOADED},   {426, 426, VERDICT_RETRY, ERROR_ROUTE},
    {427, 428, VERDICT_REJECTED, ERROR_REFUSED},   {429, 429, VERDICT_RETRY, ERROR_OVERLOADED},
    {430, 499, VERDICT_REJECTED, ERROR_REFUSED},   {500, 501, VERDICT_RETRY, ERROR_REFUSED},
    {502, 502, VERDICT_UNKNOWN, ERROR_OVERLOADED}, {503, 503, VERDICT_RETRY, ERROR_OVERLOADED},
    {504, 504, VERDICT_UNKNOWN, ERROR_OVERLOADED}, {505, 506, VERDICT_RETRY, ERROR_REFUSED},
    {507, 507, VERDICT_RETRY, ERROR_OVERLOADED},   {508, 510, VERDICT_RETRY, ERROR_REFUSED},
    {511, 511, VERDICT_RETRY, ERROR_ROUTE},        {512, 519, VERDICT_RETRY, ERROR_REFUSED},
    {520, 520, VERDICT_UNKNOWN, ERROR_OVERLOADED}, {521, 523, VERDICT_RETRY, ERROR_OVERLOADED},
    {524, 524, VERDICT_UNKNOWN, ERROR_OVERLOADED}, {525, 528, VERDICT_RETRY, ERROR_REFUSED},
    {529, 529, VERDICT_RETRY, ERROR_OVERLOADED},   {530, 599, VERDICT_RETRY, ERROR_REFUSED},
};

START_TEST(every_status_has_its_verdict)
{
    int covered = 100;
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        ck_assert_int_eq(expected[i].first, covered);
        for (int status = expected[i].first; status <= expected[i].last; status++) {
            struct http_outcome outcome = http_verdict_status(status, false);
            ck_assert_msg(outcome.verdict == expected[i].verdict && outcome.kind == expected[i].kind, "%d: %s, kind %s",
                          status, verdict_name(outcome.verdict), error_kind_name(outcome.kind));
            ck_assert(outcome.reason && *outcome.reason);
        }
        covered = expected[i].last + 1;
    }
    ck_assert_int_eq(covered, 600);
}
END_TEST

START_TEST(only_a_2xx_is_an_ack)
{
    for (long status = -1; status < 1100; status++)
        for (int path = 0; path < 2; path++)
            ck_assert_msg((http_verdict_status(status, path).verdict == VERDICT_ACKED) ==
                              (status >= 200 && status <= 299),
                          "%ld", status);
}
END_TEST

START_TEST(missing_path_is_the_events_fault_only_if_the_event_chose_it)
{
    static const int statuses[] = {404, 405, 410};
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(http_verdict_status(statuses[i], true).verdict, VERDICT_REJECTED);
        ck_assert_int_eq(http_verdict_status(statuses[i], false).kind, ERROR_ROUTE);
    }
    ck_assert_int_eq(http_verdict_status(401, true).kind, ERROR_ROUTE);
}
END_TEST

START_TEST(what_was_not_sent_may_be_sent_again_and_what_was_sent_may_have_arrived)
{
    for (int code = 1; code < CURL_LAST; code++) {
        ck_assert_int_eq(http_verdict_transfer((CURLcode)code, false).verdict, VERDICT_RETRY);
        ck_assert_int_eq(http_verdict_transfer((CURLcode)code, true).verdict, VERDICT_UNKNOWN);
        /* Never the event's own fault. */
        enum error_kind kind = http_verdict_transfer((CURLcode)code, false).kind;
        ck_assert(kind == ERROR_UNREACHABLE || kind == ERROR_ROUTE || kind == ERROR_LOST_CLAIM);
        kind = http_verdict_transfer((CURLcode)code, true).kind;
        ck_assert(kind == ERROR_UNREACHABLE || kind == ERROR_TIMEOUT || kind == ERROR_OVERLOADED);
    }
    ck_assert_int_eq(http_verdict_transfer(CURLE_PEER_FAILED_VERIFICATION, false).kind, ERROR_ROUTE);
    ck_assert_int_eq(http_verdict_transfer(CURLE_OPERATION_TIMEDOUT, false).kind, ERROR_UNREACHABLE);
    ck_assert_int_eq(http_verdict_transfer(CURLE_OPERATION_TIMEDOUT, true).kind, ERROR_TIMEOUT);
    ck_assert_int_eq(http_verdict_transfer(CURLE_RECV_ERROR, true).kind, ERROR_UNREACHABLE);
    ck_assert_int_eq(http_verdict_transfer(CURLE_ABORTED_BY_CALLBACK, false).kind, ERROR_LOST_CLAIM);
}
END_TEST

START_TEST(retry_after_takes_seconds_and_dates)
{
    const int64_t wall_s = 784111777; /* Sun, 06 Nov 1994 08:49:37 GMT */
    static const struct {
        const char *text;
        int64_t wait_s;
    } cases[] = {
        {"0", 0},
        {"1", 1},
        {" 120\r\n", 120},
        {"3600", 3600},
        {"3601", 3600},
        {"99999999999999999999999999999", 3600},
        {"Sun, 06 Nov 1994 08:50:37 GMT", 60},
        {"Sunday, 06-Nov-94 08:50:37 GMT", 60},
        {"Sun Nov  6 08:50:37 1994", 60},
        {"Sun, 06 Nov 1994 08:49:37 GMT", 0},
        {"Sun, 06 Nov 1994 08:49:00 GMT", 0},
        {"Mon, 07 Nov 1994 08:49:37 GMT", 3600},
        {"", 0},
        {"-5", 0},
        {"1.5", 0},
        {"soon", 0},
        {"12 apples", 0},
        {"0000000000000000000000000000000000000000000000000000000000000000000000007", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t us = http_retry_after_us(span_of(cases[i].text), wall_s);
        ck_assert_msg(us == cases[i].wait_s * 1000000, "%s: %lld us", cases[i].text, (long long)us);
    }
    ck_assert_int_eq(http_retry_after_us((struct span){NULL, 0}, wall_s), 0);
    ck_assert_int_eq(http_retry_after_us((struct span){"1\0002", 3}, wall_s), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_verdict");
    TCase *tcase = tcase_create("http_verdict");
    tcase_add_test(tcase, every_status_has_its_verdict);
    tcase_add_test(tcase, only_a_2xx_is_an_ack);
    tcase_add_test(tcase, missing_path_is_the_events_fault_only_if_the_event_chose_it);
    tcase_add_test(tcase, what_was_not_sent_may_be_sent_again_and_what_was_sent_may_have_arrived);
    tcase_add_test(tcase, retry_after_takes_seconds_and_dates);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
