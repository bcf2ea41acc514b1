/* The HTTP sink: what a receiver sends beyond its answer, or before its time, is nobody's answer. */

#include "tests/contract/http/http_setup.h"
#include "tests/support/run_suite.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Under valgrind, beside others, a test takes its time. */
#define PATIENCE_MS 50000

#define REFUSED "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n"
#define REQUEST_TIMEOUT "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n"
#define NO_BODY "HTTP/1.1 204 Done\r\n\r\n"

static struct delivery *deliver(struct contract *c, const char *key)
{
    struct delivery *d = contract_add(c, key, span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    return d;
}

/* The next event, which the receiver refuses: that is what the sink is told, over a connection of its own. */
static void next_is_refused(struct contract *c)
{
    struct http_counts before = http_server_counts(http.server);
    http_server_script(http.server, (struct http_script){.answer = REFUSED});
    struct delivery *d = deliver(c, "refused");
    ck_assert_int_eq(d->verdict, VERDICT_REJECTED);
    ck_assert_ptr_nonnull(strstr(d->cause->text, "HTTP 400"));
    struct http_counts after = http_server_counts(http.server);
    ck_assert_uint_eq(after.requests, before.requests + 1);
    ck_assert_uint_eq(after.connections, before.connections + 1);
}

/* Has what is late written, and waits until it is in the sink's socket. */
static void let_late_come(void)
{
    http_server_release(http.server);
    while (http_server_counts(http.server).late == 0)
        sched_yield();
}

static const char two_answers[] = HTTP_SERVER_OK HTTP_SERVER_OK;
static const char *const leftovers[] = {HTTP_SERVER_OK,  NO_BODY,    "HTTP/1.1 20", "\r\n", "x",
                                        REQUEST_TIMEOUT, two_answers};
static const char *const answers[] = {
    HTTP_SERVER_OK, NO_BODY, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n"};

#define LEFTOVERS (sizeof leftovers / sizeof leftovers[0])
#define ANSWERS (sizeof answers / sizeof answers[0])

START_TEST(bytes_that_come_after_an_answer_are_no_answer_to_the_next_event)
{
    const char *answer = answers[(size_t)_i / LEFTOVERS], *late = leftovers[(size_t)_i % LEFTOVERS];
    http_server_script(http.server, (struct http_script){.answer = answer, .late = late});
    struct contract *c = contract_open(&http_setup);
    ck_assert_int_eq(deliver(c, "taken")->verdict, VERDICT_ACKED);
    let_late_come();
    next_is_refused(c);
    contract_end(c);
}
END_TEST

START_TEST(bytes_that_come_with_an_answer_are_no_answer_to_the_next_event)
{
    const char *answer = answers[(size_t)_i / LEFTOVERS], *more = leftovers[(size_t)_i % LEFTOVERS];
    char both[256];
    snprintf(both, sizeof both, "%s%s", answer, more);
    http_server_script(http.server, (struct http_script){.answer = both});
    struct contract *c = contract_open(&http_setup);
    ck_assert_int_eq(deliver(c, "taken")->verdict, VERDICT_ACKED);
    http_server_script(http.server, (struct http_script){.answer = REFUSED});
    struct delivery *d = deliver(c, "refused");
    ck_assert_int_eq(d->verdict, VERDICT_REJECTED);
    ck_assert_ptr_nonnull(strstr(d->cause->text, "HTTP 400"));
    contract_end(c);
}
END_TEST

/* More than libcurl reads at once: the rest stays in the socket. */
START_TEST(answers_beyond_what_is_read_at_once_are_no_answers_to_the_next_event)
{
    static char answer[64 * sizeof HTTP_SERVER_OK * 4];
    size_t used = (size_t)snprintf(answer, sizeof answer, "%s", answers[_i]);
    while (used + sizeof HTTP_SERVER_OK < sizeof answer)
        used += (size_t)snprintf(answer + used, sizeof answer - used, "%s", HTTP_SERVER_OK);
    http_server_script(http.server, (struct http_script){.answer = answer});
    struct contract *c = contract_open(&http_setup);
    ck_assert_int_eq(deliver(c, "taken")->verdict, VERDICT_ACKED);
    next_is_refused(c);
    contract_end(c);
}
END_TEST

START_TEST(connection_with_leftovers_does_no_harm_to_the_others)
{
    struct contract *c = contract_open(&http_setup);
    http_server_script(http.server, (struct http_script){.hold = true});
    char key[16];
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof key, "key-%d", i);
        contract_add(c, key, span_of("{}"));
    }
    contract_submit(c);
    while (http_server_counts(http.server).held < 10)
        contract_turn(c, 10);
    http_server_release(http.server);
    ck_assert(contract_drain(c, PATIENCE_MS));
    http_server_script(http.server, (struct http_script){.answer = HTTP_SERVER_OK, .late = HTTP_SERVER_OK});
    ck_assert_int_eq(deliver(c, "one")->verdict, VERDICT_ACKED);
    let_late_come();
    http_server_script(http.server, (struct http_script){.answer = NULL});
    for (int i = 0; i < 60; i++) {
        snprintf(key, sizeof key, "more-%d", i);
        contract_add(c, key, span_of("{}"));
    }
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 71);
    ck_assert_uint_eq(http_server_counts(http.server).requests, 71);
    contract_end(c);
}
END_TEST

START_TEST(event_whose_claim_is_lost_is_not_sent_over_another_connection)
{
    if (curl_version_info(CURLVERSION_NOW)->version_num >= 0x080000)
        return; /* it finds the connection unfit itself, and makes another at once */
    http_server_script(http.server, (struct http_script){.answer = HTTP_SERVER_OK, .late = HTTP_SERVER_OK});
    struct contract *c = contract_open(&http_setup);
    ck_assert_int_eq(deliver(c, "taken")->verdict, VERDICT_ACKED);
    let_late_come();
    struct delivery *d = contract_add(c, "lost", span_of("{}"));
    ck_assert_uint_eq(contract_submit(c), 1);
    contract_turn(c, 10); /* the kept connection is found unfit */
    ck_assert_int_eq(d->verdict, VERDICT_NONE);
    ck_assert_uint_eq(http_server_counts(http.server).connections, 1);
    sink_cancel(d);
    ck_assert(contract_drain(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_RETRY);
    ck_assert_int_eq(d->cause->kind, ERROR_LOST_CLAIM);
    ck_assert_uint_eq(http_server_counts(http.server).requests, 1);
    contract_end(c);
}
END_TEST

#define LARGE ((size_t)16 * 1024 * 1024) /* more than the sockets hold */

/* The receiver answers when it has read the header, and reads the body then. */
static enum verdict verdict_of_early(const char *answer, bool kept, char reason[ERROR_TEXT_MAX])
{
    struct contract *c = contract_open(&http_setup);
    if (kept)
        ck_assert_int_eq(deliver(c, "first")->verdict, VERDICT_ACKED);
    char *payload = calloc(LARGE, 1);
    http_server_script(http.server, (struct http_script){.answer = answer, .early = true});
    struct delivery *d = contract_add(c, "early", (struct span){payload, LARGE});
    ck_assert(contract_run(c, PATIENCE_MS));
    enum verdict verdict = d->verdict;
    snprintf(reason, ERROR_TEXT_MAX, "%s", d->cause ? d->cause->text : "");
    http_server_script(http.server, (struct http_script){.answer = NULL});
    ck_assert_int_eq(deliver(c, "last")->verdict, VERDICT_ACKED);
    ck_assert_uint_eq(http_server_counts(http.server).connections, kept ? 2 : 1);
    contract_end(c);
    free(payload);
    return verdict;
}

START_TEST(ack_before_all_of_the_request_is_sent_over_a_kept_connection_is_unknown)
{
    char reason[ERROR_TEXT_MAX];
    ck_assert_int_eq(verdict_of_early(HTTP_SERVER_OK, true, reason), VERDICT_UNKNOWN);
    ck_assert_ptr_nonnull(strstr(reason, "it was answered before all of it was sent"));
    ck_assert_ptr_null(strstr(reason, "HTTP 200"));
}
END_TEST

START_TEST(ack_before_all_of_the_request_is_sent_over_a_new_connection_counts)
{
    char reason[ERROR_TEXT_MAX];
    ck_assert_int_eq(verdict_of_early(HTTP_SERVER_OK, false, reason), VERDICT_ACKED);
}
END_TEST

START_TEST(refusal_before_all_of_the_request_is_sent_counts)
{
    char reason[ERROR_TEXT_MAX];
    ck_assert_int_eq(verdict_of_early("HTTP/1.1 413 Large\r\nContent-Length: 0\r\n\r\n", true, reason),
                     VERDICT_REJECTED);
}
END_TEST

START_TEST(interim_answers_keep_the_connection)
{
    http_server_script(http.server, (struct http_script){.answer = "HTTP/1.1 102 Wait\r\n\r\n" HTTP_SERVER_OK});
    struct contract *c = contract_open(&http_setup);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(deliver(c, "k")->verdict, VERDICT_ACKED);
    ck_assert_uint_eq(http_server_counts(http.server).connections, 1);
    contract_end(c);
}
END_TEST

static TCase *kept_tcase(void)
{
    TCase *tcase = http_tcase("kept connections");
    tcase_add_loop_test(tcase, bytes_that_come_after_an_answer_are_no_answer_to_the_next_event, 0,
                        (int)(LEFTOVERS * ANSWERS));
    tcase_add_loop_test(tcase, bytes_that_come_with_an_answer_are_no_answer_to_the_next_event, 0,
                        (int)(LEFTOVERS * ANSWERS));
    tcase_add_loop_test(tcase, answers_beyond_what_is_read_at_once_are_no_answers_to_the_next_event, 0, (int)ANSWERS);
    tcase_add_test(tcase, connection_with_leftovers_does_no_harm_to_the_others);
    tcase_add_test(tcase, event_whose_claim_is_lost_is_not_sent_over_another_connection);
    tcase_add_test(tcase, ack_before_all_of_the_request_is_sent_over_a_kept_connection_is_unknown);
    tcase_add_test(tcase, ack_before_all_of_the_request_is_sent_over_a_new_connection_counts);
    tcase_add_test(tcase, refusal_before_all_of_the_request_is_sent_counts);
    tcase_add_test(tcase, interim_answers_keep_the_connection);
    return tcase;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as pgcourier does: OpenSSL writes without MSG_NOSIGNAL */
    Suite *suite = suite_create("http kept connections");
    suite_add_tcase(suite, kept_tcase());
    return run_suite(suite);
}
