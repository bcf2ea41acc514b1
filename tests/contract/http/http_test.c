/* The HTTP sink: what every sink must do, what its requests say, and how it treats connections. What it makes of
 * answers is in http_answer_test.c. */

#include "tests/contract/http/http_setup.h"
#include "tests/support/run_suite.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

START_TEST(payload_arrives_byte_for_byte)
{
    char payload[70000]; /* more than libcurl sends along with the header */
    for (size_t i = 0; i < sizeof payload; i++)
        payload[i] = (char)(i * 7);
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", (struct span){payload, sizeof payload});
    ck_assert(contract_run(c, 10000));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    ck_assert(span_equal(http_server_body(http.server), (struct span){payload, sizeof payload}));
    ck_assert(http_lacks_header("expect"));
    contract_end(c);
}
END_TEST

START_TEST(request_names_its_event)
{
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "order-7", span_of("{}"));
    struct event *event = contract_event(d);
    event->type = span_of("paid");
    event->payload_kind = PAYLOAD_JSON;
    event->event_id = span_of("5f1b9a3e-0c1d-4f5e-8a6b-1c2d3e4f5a6b");
    event->headers = span_of("{\"x-tenant\": \"acme\", \"Host\": \"evil\", \"n\": 5}");
    ck_assert(contract_run(c, 10000));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    ck_assert(strncmp(http_server_head(http.server), "POST /in HTTP/1.1\r\n", 19) == 0);
    ck_assert(http_has_header("webhook-id", "5f1b9a3e-0c1d-4f5e-8a6b-1c2d3e4f5a6b"));
    ck_assert(http_has_header("event-id", "1"));
    ck_assert(http_has_header("event-key", "order-7"));
    ck_assert(http_has_header("event-type", "paid"));
    ck_assert(http_has_header("content-type", "application/json"));
    ck_assert(http_has_header("x-tenant", "acme"));
    ck_assert(http_has_header("n", "5"));
    ck_assert(!http_has_header("host", "evil"));
    ck_assert(http_lacks_header("event-tombstone"));
    char stamp[32];
    ck_assert(http_server_header(http.server, "webhook-timestamp", stamp, sizeof stamp));
    ck_assert(llabs(strtoll(stamp, NULL, 10) - clock_wall_us() / SECOND_US) <= 10);
    contract_end(c);
}
END_TEST

START_TEST(null_payload_is_an_empty_body_marked_as_tombstone)
{
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", (struct span){NULL, 0});
    ck_assert(contract_run(c, 10000));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    ck_assert(http_has_header("event-tombstone", "true"));
    ck_assert(http_has_header("content-length", "0"));
    contract_end(c);
}
END_TEST

START_TEST(configured_headers_and_credentials_are_sent)
{
    struct setting_pair extra = {"X-Source", "shop"};
    http.settings.headers = (struct setting_map){&extra, 1};
    http.settings.bearer_token = "s3cret";
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    contract_event(d)->headers = span_of("{\"x-source\": \"event\", \"authorization\": \"Basic eDp5\"}");
    ck_assert(contract_run(c, 10000));
    ck_assert(http_has_header("x-source", "shop"));
    ck_assert(http_has_header("authorization", "Bearer s3cret"));
    contract_end(c);
}
END_TEST

START_TEST(user_of_the_url_becomes_basic_credentials)
{
    char with_user[96];
    snprintf(with_user, sizeof with_user, "http://me:p%%40ss@127.0.0.1:%d/in", http_server_port(http.server));
    http.settings.url = with_user;
    http_server_script(http.server, (struct http_script){.answer = "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"});
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    ck_assert(contract_run(c, 10000));
    ck_assert(http_has_header("authorization", "Basic bWU6cEBzcw=="));
    ck_assert_int_eq(d->verdict, VERDICT_RETRY);
    ck_assert_int_eq(d->cause->kind, ERROR_ROUTE);
    ck_assert_ptr_null(strstr(d->cause->text, "p@ss"));
    ck_assert_ptr_null(strstr(d->cause->text, "p%40ss"));
    contract_end(c);
}
END_TEST

START_TEST(data_cannot_add_a_header_or_a_request)
{
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k\r\nX-Evil: 1\r\n\r\nPOST /evil HTTP/1.1", span_of("{}"));
    contract_event(d)->type = (struct span){"a\0b\nX-Evil: 2", 13};
    contract_event(d)->headers = span_of("{\"x-note\": \"a\\r\\nX-Evil: 3\"}");
    ck_assert(contract_run(c, 10000));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    ck_assert(http_lacks_header("X-Evil"));
    ck_assert(http_has_header("event-key", "k%0D%0AX-Evil: 1%0D%0A%0D%0APOST /evil HTTP/1.1"));
    ck_assert(http_has_header("event-type", "a%00b%0AX-Evil: 2"));
    ck_assert(http_has_header("x-note", "a%0D%0AX-Evil: 3"));
    ck_assert_uint_eq(http_server_counts(http.server).requests, 1);
    contract_end(c);
}
END_TEST

START_TEST(unsendable_event_is_rejected_and_its_neighbours_go_on)
{
    struct contract *c = contract_open(&http_setup);
    struct delivery *bad_name = contract_add(c, "a", span_of("{}"));
    contract_event(bad_name)->headers = span_of("{\"x note\": \"1\"}");
    struct delivery *bad_json = contract_add(c, "b", span_of("{}"));
    contract_event(bad_json)->headers = span_of("{\"x\": ");
    struct delivery *climber = contract_add(c, "c", span_of("{}"));
    climber->destination = span_of("a/../../admin");
    struct delivery *good = contract_add(c, "d", span_of("{}"));
    ck_assert(contract_run(c, 10000));
    ck_assert_int_eq(bad_name->verdict, VERDICT_REJECTED);
    ck_assert_int_eq(bad_json->verdict, VERDICT_REJECTED);
    ck_assert_int_eq(climber->verdict, VERDICT_REJECTED);
    ck_assert_int_eq(climber->cause->kind, ERROR_REFUSED);
    ck_assert_int_eq(good->verdict, VERDICT_ACKED);
    ck_assert_uint_eq(http_server_counts(http.server).requests, 1);
    contract_end(c);
}
END_TEST

START_TEST(destination_is_a_path_and_never_a_host)
{
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    d->destination = span_of("http://169.254.169.254/x?y#z");
    ck_assert(contract_run(c, 10000));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    ck_assert_ptr_nonnull(strstr(http_server_head(http.server), "POST /in/http://169.254.169.254/x%3Fy%23z HTTP/1.1"));
    contract_end(c);
}
END_TEST

START_TEST(connection_is_kept_for_the_next_event)
{
    struct contract *c = contract_open(&http_setup);
    for (int i = 0; i < 20; i++)
        contract_add(c, "same", span_of("{}"));
    ck_assert(contract_run(c, 10000));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 20);
    ck_assert_uint_eq(http_server_counts(http.server).requests, 20);
    ck_assert_uint_eq(http_server_counts(http.server).connections, 1);
    contract_end(c);
}
END_TEST

/* Closed without notice, but before the next request: libcurl sees it and takes a new connection. */
START_TEST(connection_closed_by_the_server_meanwhile_does_no_harm)
{
    http_server_script(http.server, (struct http_script){.close = true});
    struct contract *c = contract_open(&http_setup);
    for (int i = 0; i < 5; i++) {
        contract_add(c, "same", span_of("{}"));
        ck_assert(contract_run(c, 10000));
        while (http_server_counts(http.server).open > 0)
            sched_yield();
    }
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 5);
    ck_assert_uint_eq(http_server_counts(http.server).requests, 5);
    contract_end(c);
}
END_TEST

START_TEST(request_that_is_cancelled_before_it_is_sent_does_not_leave)
{
    struct contract *c = contract_open(&http_setup);
    struct delivery *d = contract_add(c, "k", span_of("{}")), *other = contract_add(c, "o", span_of("{}"));
    ck_assert_uint_eq(contract_submit(c), 2);
    sink_cancel(d);
    ck_assert(contract_drain(c, 10000));
    ck_assert_int_eq(d->verdict, VERDICT_RETRY);
    ck_assert_int_eq(d->cause->kind, ERROR_LOST_CLAIM);
    ck_assert_int_eq(other->verdict, VERDICT_ACKED);
    ck_assert_uint_eq(http_server_counts(http.server).requests, 1);
    contract_end(c);
}
END_TEST

/* The second request goes over the connection of the first, is read there, and then the connection ends. */
static enum verdict meet_a_dead_connection(bool cancelled)
{
    struct contract *c = contract_open(&http_setup);
    contract_add(c, "same", span_of("{}"));
    ck_assert(contract_run(c, 10000));
    http_server_script(http.server, (struct http_script){.silent = true, .hold = true});
    struct delivery *d = contract_add(c, "same", span_of("{}"));
    ck_assert_uint_eq(contract_submit(c), 1);
    while (http_server_counts(http.server).held < 1)
        contract_turn(c, 10);
    ck_assert_uint_eq(http_server_counts(http.server).connections, 1);
    if (cancelled)
        sink_cancel(d);
    http_server_script(http.server, (struct http_script){0});
    http_server_release(http.server);
    ck_assert(contract_drain(c, 10000));
    enum verdict verdict = d->verdict;
    contract_end(c);
    return verdict;
}

START_TEST(request_that_met_a_dead_connection_is_sent_again)
{
    ck_assert_int_eq(meet_a_dead_connection(false), VERDICT_ACKED);
    ck_assert_uint_eq(http_server_counts(http.server).requests, 3);
}
END_TEST

START_TEST(request_that_was_cancelled_is_not_sent_again)
{
    ck_assert_int_eq(meet_a_dead_connection(true), VERDICT_UNKNOWN);
    ck_assert_uint_eq(http_server_counts(http.server).requests, 2);
}
END_TEST

START_TEST(requests_of_different_keys_run_in_parallel)
{
    http_server_script(http.server, (struct http_script){.hold = true});
    struct contract *c = contract_open(&http_setup);
    char key[16];
    for (int i = 0; i < 300; i++) {
        snprintf(key, sizeof key, "key-%d", i);
        contract_add(c, key, span_of("{\"n\": 1}"));
    }
    ck_assert_uint_eq(contract_submit(c), 256);
    for (int i = 0; http_server_counts(http.server).held < 256; i++) {
        ck_assert_int_lt(i, 100000);
        contract_turn(c, 10);
    }
    http_server_release(http.server);
    ck_assert(contract_run(c, 20000));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 300);
    ck_assert_uint_eq(http_server_counts(http.server).held_most, 256);
    contract_end(c);
}
END_TEST

START_TEST(receiver_that_makes_it_wait_gets_all_requests_that_are_allowed)
{
    http.settings.connections = 40;
    http_server_script(http.server, (struct http_script){.hold = true});
    struct contract *c = contract_open(&http_setup);
    for (int i = 0; i < 40; i++)
        contract_add(c, NULL, span_of("{}"));
    ck_assert_uint_eq(contract_submit(c), 40);
    for (int i = 0; i < 20; i++)
        contract_turn(c, 5);
    ck_assert_uint_eq(c->sink->in_flight_max, 40);
    http_server_release(http.server);
    ck_assert(contract_drain(c, 20000));
    contract_end(c);
}
END_TEST

START_TEST(close_gives_up_what_is_unanswered)
{
    http_server_script(http.server, (struct http_script){.hold = true});
    struct contract *c = contract_open(&http_setup);
    char key[16];
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "key-%d", i);
        contract_add(c, key, span_of("{}"));
    }
    ck_assert_uint_eq(contract_submit(c), 10);
    while (http_server_counts(http.server).held < 10)
        contract_turn(c, 10);
    ck_assert_int_lt(contract_close_us(c), SECOND_US);
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_UNKNOWN), 10);
    contract_end(c);
}
END_TEST

static size_t open_descriptors(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

START_TEST(probe_finds_out_without_sending)
{
    struct contract *c = contract_open(&http_setup);
    ck_assert_int_eq(contract_probe(c, "", 5000), REACH_YES);
    size_t descriptors = open_descriptors();
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(contract_probe(c, "", 5000), REACH_YES);
    ck_assert_uint_eq(http_server_counts(http.server).requests, 0);
    while (http_server_counts(http.server).connections < 21)
        sched_yield();
    ck_assert_uint_le(open_descriptors(), descriptors + 21); /* the server's side may lag behind, ours must not */
    http_server_stop(http.server);
    ck_assert_int_eq(contract_probe(c, "", 5000), REACH_NO);
    ck_assert_int_eq(contract_probe(c, "", 5000), REACH_NO);
    http.server = http_server_start(NULL, NULL);
    contract_end(c);
}
END_TEST

static void refused(const char *part)
{
    struct error err;
    ck_assert_ptr_null(sink_open(&sink_http, "hook", &http.settings, &err));
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    ck_assert_msg(strstr(err.text, part) != NULL, "%s", err.text);
}

START_TEST(settings_that_cannot_work_are_refused_at_open)
{
    struct setting_pair extra = {"Content-Length", "5"};
    http.settings.headers = (struct setting_map){&extra, 1};
    refused("Content-Length is set by pgcourier itself");
    extra = (struct setting_pair){"X Y", "5"};
    refused("\"X Y\" is not a header name");
    extra = (struct setting_pair){"X-Y", "a\nb"};
    refused("the value of X-Y is not printable");
    http.settings.headers.count = 0;
    http.settings.bearer_token = "abc\n";
    refused("bearer_token");
    http.settings.bearer_token = NULL;
    http.settings.connect_timeout_us = 60 * SECOND_US;
    refused("connect_timeout: longer than timeout");
    http.settings.connect_timeout_us = SECOND_US;
    http.settings.url = "http://user:geheim@host/#frag";
    refused("#fragment");
    http.settings.url = "ftp://host/";
    refused("scheme");
    http.settings.url = "http://bad host/";
    refused("url: ");
}
END_TEST

static TCase *own_tcase(void)
{
    TCase *tcase = http_tcase("http only");
    tcase_add_test(tcase, payload_arrives_byte_for_byte);
    tcase_add_test(tcase, request_names_its_event);
    tcase_add_test(tcase, null_payload_is_an_empty_body_marked_as_tombstone);
    tcase_add_test(tcase, configured_headers_and_credentials_are_sent);
    tcase_add_test(tcase, user_of_the_url_becomes_basic_credentials);
    tcase_add_test(tcase, data_cannot_add_a_header_or_a_request);
    tcase_add_test(tcase, unsendable_event_is_rejected_and_its_neighbours_go_on);
    tcase_add_test(tcase, destination_is_a_path_and_never_a_host);
    tcase_add_test(tcase, connection_is_kept_for_the_next_event);
    tcase_add_test(tcase, connection_closed_by_the_server_meanwhile_does_no_harm);
    tcase_add_test(tcase, request_that_is_cancelled_before_it_is_sent_does_not_leave);
    tcase_add_test(tcase, request_that_met_a_dead_connection_is_sent_again);
    tcase_add_test(tcase, request_that_was_cancelled_is_not_sent_again);
    tcase_add_test(tcase, requests_of_different_keys_run_in_parallel);
    tcase_add_test(tcase, receiver_that_makes_it_wait_gets_all_requests_that_are_allowed);
    tcase_add_test(tcase, close_gives_up_what_is_unanswered);
    tcase_add_test(tcase, probe_finds_out_without_sending);
    tcase_add_test(tcase, settings_that_cannot_work_are_refused_at_open);
    return tcase;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as pgcourier does: OpenSSL writes without MSG_NOSIGNAL */
    Suite *suite = suite_create("http");
    suite_add_tcase(suite, contract_tcase(&http_setup));
    suite_add_tcase(suite, own_tcase());
    return run_suite(suite);
}
