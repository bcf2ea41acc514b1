/* The HTTP sink: which verdict an answer leads to, or none, or half of one. */

#include "tests/contract/http_setup.h"
#include "tests/support/run_suite.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* A connection to `elsewhere` would do, so it speaks no TLS. What begins with https is in http_tls_test.c. */
START_TEST(redirect_is_a_failure_and_not_followed)
{
    static const char *const schemes[] = {"http", "https"};
    struct http_server *elsewhere = http_server_start(NULL, NULL);
    for (size_t i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        static char answer[160];
        snprintf(answer, sizeof answer,
                 "HTTP/1.1 307 Moved\r\nLocation: %s://127.0.0.1:%d/in\r\nContent-Length: 0\r\n\r\n", schemes[i],
                 http_server_port(elsewhere));
        http_server_script(http.server, (struct http_script){.answer = answer});
        enum error_kind kind;
        ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_RETRY);
        ck_assert_int_eq(kind, ERROR_ROUTE);
        ck_assert_uint_eq(http_server_counts(http.server).requests, i + 1);
        ck_assert_uint_eq(http_server_counts(elsewhere).connections, 0);
    }
    http_server_stop(elsewhere);
}
END_TEST

START_TEST(retry_after_and_what_the_receiver_says_reach_the_engine)
{
    http_server_script(http.server,
                       (struct http_script){.answer = "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: "
                                                      "12\r\n\r\nback\tsoon\r\n\xc3"});
    http.settings.log_answers = true;
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    ck_assert(contract_run(c, 10000));
    ck_assert_int_eq(d->verdict, VERDICT_RETRY);
    ck_assert_int_eq(d->cause->kind, ERROR_OVERLOADED);
    ck_assert_int_eq(d->retry_after_us, 7 * SECOND_US);
    ck_assert_ptr_nonnull(strstr(d->cause->text, "HTTP 503"));
    ck_assert_ptr_nonnull(strstr(d->cause->text, "back soon  ?"));
    contract_end(c);
}
END_TEST

/* It may hold the payload, or the token that came with it. */
START_TEST(what_the_receiver_says_is_not_told_unless_asked_for)
{
    http_server_script(http.server, (struct http_script){.answer = "HTTP/1.1 422 No\r\nX-A: canary\r\n"
                                                                   "Content-Length: 6\r\n\r\ncanary"});
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    ck_assert(contract_run(c, 10000));
    ck_assert_int_eq(d->verdict, VERDICT_REJECTED);
    ck_assert_ptr_nonnull(strstr(d->cause->text, "HTTP 422"));
    ck_assert_ptr_null(strstr(d->cause->text, "canary"));
    contract_end(c);
}
END_TEST

/* Wherever the answer is cut, the event counts as delivered only when all of it came. */
START_TEST(answer_cut_at_any_byte_is_never_an_ack)
{
    static const char whole[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhello";
    for (size_t cut = 0; cut < sizeof whole - 1; cut++) {
        http_server_script(http.server, (struct http_script){.answer = whole, .cut = cut, .silent = cut == 0});
        enum error_kind kind;
        ck_assert_msg(http_verdict_of_one(&kind) == VERDICT_UNKNOWN, "cut at byte %zu", cut);
    }
    http_server_script(http.server, (struct http_script){.answer = whole, .close = true});
    enum error_kind kind;
    ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_ACKED);
}
END_TEST

START_TEST(refusal_with_a_cut_body_is_still_a_refusal)
{
    static const char whole[] = "HTTP/1.1 422 No\r\nContent-Length: 5\r\n\r\nwrong";
    size_t head = (size_t)(strstr(whole, "\r\n\r\n") + 4 - whole);
    for (size_t cut = 1; cut < sizeof whole - 1; cut++) {
        http_server_script(http.server, (struct http_script){.answer = whole, .cut = cut});
        enum error_kind kind;
        ck_assert_msg(http_verdict_of_one(&kind) == (cut < head ? VERDICT_UNKNOWN : VERDICT_REJECTED), "cut at %zu",
                      cut);
    }
}
END_TEST

START_TEST(reset_after_sending_is_unknown)
{
    http_server_script(http.server, (struct http_script){.silent = true, .reset = true});
    enum error_kind kind;
    ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_UNKNOWN);
    ck_assert_int_eq(kind, ERROR_UNREACHABLE);
}
END_TEST

START_TEST(no_answer_in_time_is_unknown)
{
    http.settings.timeout_us = http.settings.connect_timeout_us = 100 * MS_US;
    http_server_script(http.server, (struct http_script){.hold = true});
    enum error_kind kind;
    ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_UNKNOWN);
    ck_assert_int_eq(kind, ERROR_TIMEOUT);
    http_server_release(http.server);
}
END_TEST

START_TEST(nobody_listening_is_a_retry_that_blames_the_destination)
{
    http_server_stop(http.server);
    enum error_kind kind;
    ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_RETRY);
    ck_assert_int_eq(kind, ERROR_UNREACHABLE);
    http.server = http_server_start(NULL, NULL);
}
END_TEST

START_TEST(unknown_host_is_a_retry_that_blames_the_destination)
{
    http.settings.url = "http://no-such-host.invalid/in";
    enum error_kind kind;
    ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_RETRY);
    ck_assert_int_eq(kind, ERROR_UNREACHABLE);
}
END_TEST

START_TEST(answer_that_is_not_http_is_unknown)
{
    static const char *const garbage[] = {"SSH-2.0-OpenSSH_9.2\r\n",
                                          "\x15\x03\x01",
                                          "200 OK\r\n\r\n",
                                          "HTTP/9.9 x\r\n\r\n",
                                          "HTTP/x.1 500 no\r\nContent-Length: 0\r\n\r\n",
                                          "http/1.1 500 no\r\nContent-Length: 0\r\n\r\n",
                                          "HTTP/2 0210 no\r\nContent-Length: 0\r\n\r\n",
                                          "HTTP/1.1 100 Continue\r\n\rx\nHTTp/1.1 422 no\r\nContent-Length: 0\r\n\r\n"};
    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++) {
        http_server_script(http.server, (struct http_script){.answer = garbage[i], .close = true});
        enum error_kind kind;
        ck_assert_msg(http_verdict_of_one(&kind) == VERDICT_UNKNOWN, "garbage %zu", i);
    }
}
END_TEST

START_TEST(endless_header_is_cut_off)
{
    static char answer[100000]; /* the server may still be writing after the verdict */
    size_t used = (size_t)sprintf(answer, "HTTP/1.1 200 OK\r\n");
    while (used < 90000)
        used += (size_t)sprintf(answer + used, "X-Line: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n");
    memcpy(answer + used, "\r\n", 3);
    http_server_script(http.server, (struct http_script){.answer = answer, .close = true});
    enum error_kind kind;
    ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_UNKNOWN);
}
END_TEST

START_TEST(large_answer_is_cut_off_and_its_status_counts)
{
    http.settings.max_response = 1000;
    static char answer[70000];
    size_t used = (size_t)sprintf(answer, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
    memset(answer + used, 'x', 60000);
    answer[used + 60000] = '\0';
    http_server_script(http.server, (struct http_script){.answer = answer});
    enum error_kind kind;
    ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_ACKED);
}
END_TEST

START_TEST(interim_answers_are_not_the_answer)
{
    http_server_script(http.server, (struct http_script){.answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early "
                                                                   "Hints\r\nRetry-After: 1\r\n\r\n" HTTP_SERVER_OK});
    enum error_kind kind;
    ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_ACKED);
    http_server_script(http.server, (struct http_script){.answer = "HTTP/1.1 100 Continue\r\n\r\n", .close = true});
    ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_UNKNOWN);
}
END_TEST

START_TEST(answer_is_kept_where_it_is_asked_for)
{
    http_server_script(http.server,
                       (struct http_script){.answer = "HTTP/1.1 201 Made\r\nContent-Length: 7\r\n\r\n{\"a\":1}"});
    struct contract *c = contract_open(&http_setup);
    struct delivery *asked = contract_add(c, "k", span_of("{}"));
    asked->response = response_new(c->arena, 7);
    contract_add(c, "other", span_of("{}"));
    ck_assert(contract_run(c, 10000));
    ck_assert_int_eq(asked->verdict, VERDICT_ACKED);
    ck_assert(span_equal(response_span(asked->response), span_of("{\"a\":1}")));
    ck_assert(!asked->response->cut);
    contract_end(c);
}
END_TEST

START_TEST(answer_that_is_too_long_is_told_to_be)
{
    const char *why = NULL;
    http.settings.max_response = 6;
    ck_assert_int_eq(sink_http.response_max(&http.settings, &why), 6);
    http_server_script(http.server,
                       (struct http_script){.answer = "HTTP/1.1 201 Made\r\nContent-Length: 7\r\n\r\n{\"a\":1}"});
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    d->response = response_new(c->arena, 6);
    ck_assert(contract_run(c, 10000));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    ck_assert(d->response->cut);
    contract_end(c);
}
END_TEST

static TCase *answer_tcase(void)
{
    TCase *tcase = http_tcase("http answers");
    tcase_add_test(tcase, redirect_is_a_failure_and_not_followed);
    tcase_add_test(tcase, retry_after_and_what_the_receiver_says_reach_the_engine);
    tcase_add_test(tcase, what_the_receiver_says_is_not_told_unless_asked_for);
    tcase_add_test(tcase, answer_cut_at_any_byte_is_never_an_ack);
    tcase_add_test(tcase, refusal_with_a_cut_body_is_still_a_refusal);
    tcase_add_test(tcase, reset_after_sending_is_unknown);
    tcase_add_test(tcase, no_answer_in_time_is_unknown);
    tcase_add_test(tcase, nobody_listening_is_a_retry_that_blames_the_destination);
    tcase_add_test(tcase, unknown_host_is_a_retry_that_blames_the_destination);
    tcase_add_test(tcase, answer_that_is_not_http_is_unknown);
    tcase_add_test(tcase, endless_header_is_cut_off);
    tcase_add_test(tcase, large_answer_is_cut_off_and_its_status_counts);
    tcase_add_test(tcase, interim_answers_are_not_the_answer);
    tcase_add_test(tcase, answer_is_kept_where_it_is_asked_for);
    tcase_add_test(tcase, answer_that_is_too_long_is_told_to_be);
    return tcase;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as pgcourier does: OpenSSL writes without MSG_NOSIGNAL */
    Suite *suite = suite_create("http answers");
    suite_add_tcase(suite, answer_tcase());
    return run_suite(suite);
}
