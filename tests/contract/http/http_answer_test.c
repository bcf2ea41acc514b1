/* The HTTP sink: which verdict an answer leads to, or none, or half of one. */

#include "tests/contract/http/http_setup.h"
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

/* One turn of a loop whose clock says `now`. */
static void turn_at(struct contract *c, instant_us now)
{
    struct error err = {0};
    pollset_clear(c->ps);
    sink_prepare(c->sink, c->ps);
    pollset_deadline(c->ps, now + 10 * MS_US);
    ck_assert_msg(pollset_wait(c->ps, now, &err), "%s", err.text);
    sink_progress(c->sink, c->ps, now);
}

/* By libcurl's clock, which is the real one, and by the loop's. */
START_TEST(answer_that_came_while_the_process_stood_still_counts)
{
    http.settings.timeout_us = http.settings.connect_timeout_us = SECOND_US;
    http_server_script(http.server, (struct http_script){.answer = HTTP_SERVER_OK, .hold = true, .close = true});
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    ck_assert_uint_eq(contract_submit(c), 1);
    instant_us begun = clock_now(), now = begun;
    for (; http_server_counts(http.server).held == 0; now += MS_US)
        turn_at(c, now);
    http_server_release(http.server);
    while (http_server_counts(http.server).open > 0 || clock_now() < begun + 2 * SECOND_US)
        poll(NULL, 0, 10);
    ck_assert_int_eq(d->verdict, VERDICT_NONE);
    turn_at(c, now + 10 * SECOND_US);
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    contract_end(c);
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

#define BOMB_COPIES 40000 /* of 258 bytes each: 10 MB */
#define BOMB_BYTES_MAX 70000

/* The least significant bit of a byte comes first, and the most significant one of a code. */
static void put_code(char *bytes, size_t *bit, unsigned code, int bits)
{
    for (int i = bits - 1; i >= 0; i--, (*bit)++)
        bytes[*bit / 8] = (char)(bytes[*bit / 8] | (int)((code >> i & 1) << *bit % 8));
}

/* A gzip file (RFC 1952) of 10 MB of the letter x, one block of the fixed codes of RFC 1951; its check sum is wrong. */
static size_t gzip_bomb(char bytes[BOMB_BYTES_MAX])
{
    static const char head[] = "\x1f\x8b\x08\0\0\0\0\0\0\x03";
    size_t bit = (sizeof head - 1) * 8;
    memset(bytes, 0, BOMB_BYTES_MAX);
    memcpy(bytes, head, sizeof head - 1);
    put_code(bytes, &bit, 6, 3);          /* the last block, fixed codes */
    put_code(bytes, &bit, 0x30 + 'x', 8); /* x */
    for (size_t i = 0; i < BOMB_COPIES; i++) {
        put_code(bytes, &bit, 0xc5, 8); /* 258 times */
        put_code(bytes, &bit, 0, 5);    /* what was there before */
    }
    put_code(bytes, &bit, 0, 7); /* the end */
    return (bit + 7) / 8 + 8;
}

static const char *const codings[] = {"Content-Encoding: gzip", "Content-Encoding: x-gzip", "Content-Encoding: deflate",
                                      "Transfer-Encoding: gzip"};

/* Nobody has asked for it to be compressed. Later libcurls than 8.1 may refuse the last one for that. */
START_TEST(compressed_answer_is_taken_as_it_is)
{
    static char bomb[BOMB_BYTES_MAX], answer[BOMB_BYTES_MAX + 200];
    size_t size = gzip_bomb(bomb);
    size_t used =
        (size_t)snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\nConnection: close\r\n%s\r\n\r\n", codings[_i]);
    memcpy(answer + used, bomb, size);
    http_server_script(http.server, (struct http_script){.answer = answer, .size = used + size, .close = true});
    http.settings.max_response = INT64_C(64) * 1024 * 1024;
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    d->response = response_new(c->arena, (size_t)http.settings.max_response);
    ck_assert(contract_run(c, 10000));
    bool refused = d->verdict == VERDICT_UNKNOWN && codings[_i][0] == 'T' && LIBCURL_VERSION_NUM > 0x080100;
    ck_assert(refused || d->verdict == VERDICT_ACKED);
    ck_assert_uint_eq(response_span(d->response).size, refused ? 0 : size);
    ck_assert(refused || span_equal(response_span(d->response), (struct span){bomb, size}));
    ck_assert(http_lacks_header("Accept-Encoding"));
    contract_end(c);
}
END_TEST

START_TEST(cookies_are_not_sent_back)
{
    http_server_script(http.server,
                       (struct http_script){.answer = "HTTP/1.1 200 OK\r\nSet-Cookie: a=canary; Path=/\r\n"
                                                      "Set-Cookie: b=canary\r\nContent-Length: 0\r\n\r\n"});
    struct contract *c = contract_open(&http_setup);
    for (int i = 0; i < 3; i++) {
        contract_add(c, "k", span_of("{}"));
        ck_assert(contract_run(c, 10000));
        ck_assert(http_lacks_header("Cookie"));
        ck_assert_ptr_null(strstr(http_server_head(http.server), "canary"));
    }
    ck_assert_uint_eq(http_server_counts(http.server).requests, 3);
    ck_assert_uint_eq(http_server_counts(http.server).connections, 1);
    contract_end(c);
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
    tcase_add_test(tcase, answer_that_came_while_the_process_stood_still_counts);
    tcase_add_test(tcase, nobody_listening_is_a_retry_that_blames_the_destination);
    tcase_add_test(tcase, unknown_host_is_a_retry_that_blames_the_destination);
    tcase_add_test(tcase, answer_that_is_not_http_is_unknown);
    tcase_add_test(tcase, endless_header_is_cut_off);
    tcase_add_test(tcase, large_answer_is_cut_off_and_its_status_counts);
    tcase_add_loop_test(tcase, compressed_answer_is_taken_as_it_is, 0, (int)(sizeof codings / sizeof codings[0]));
    tcase_add_test(tcase, cookies_are_not_sent_back);
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
