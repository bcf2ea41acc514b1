#include "sinks/http/http_headers.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static struct arena *arena;
static struct event event;
static struct delivery d;
static struct setting_pair pair = {"X-Source", "shop"};
static struct setting_map extra = {&pair, 1};
static struct http_headers *headers;
static struct error err;

static void start(void)
{
    arena = arena_new();
    event = (struct event){.id = 812, .payload = span_of("{}"), .payload_kind = PAYLOAD_JSON};
    d = (struct delivery){.event = &event, .arena = arena};
    headers = http_headers_open(&extra, NULL, NULL, NULL, &err);
    ck_assert_ptr_nonnull(headers);
}

static void stop(void)
{
    http_headers_close(headers);
    arena_free(arena);
}

static size_t count(const struct curl_slist *list, const char *line)
{
    size_t found = 0;
    for (; list; list = list->next)
        found += strcmp(list->data, line) == 0;
    return found;
}

/* How many lines start with `name`, whatever their value. */
static size_t named(const struct curl_slist *list, const char *name)
{
    size_t found = 0;
    for (; list; list = list->next)
        found += strncasecmp(list->data, name, strlen(name)) == 0 && strchr(":;", list->data[strlen(name)]);
    return found;
}

static struct curl_slist *built(void)
{
    struct curl_slist *list = http_headers_build(headers, &d, 1700000000, &err);
    ck_assert_ptr_nonnull(list);
    return list;
}

static void refuses(const char *part)
{
    ck_assert_ptr_null(http_headers_build(headers, &d, 1700000000, &err));
    ck_assert_int_eq(err.kind, ERROR_REFUSED);
    ck_assert_msg(strstr(err.text, part) != NULL, "%s", err.text);
}

START_TEST(webhook_id_is_the_uuid_or_else_the_number)
{
    ck_assert_uint_eq(count(built(), "webhook-id: 812"), 1);
    event.event_id = span_of("5f1b9a3e-0c1d-4f5e-8a6b-1c2d3e4f5a6b");
    ck_assert_uint_eq(count(built(), "webhook-id: 5f1b9a3e-0c1d-4f5e-8a6b-1c2d3e4f5a6b"), 1);
    ck_assert_uint_eq(count(built(), "event-id: 812"), 1);
    event.event_id = span_of("a.b");
    refuses("dot");
}
END_TEST

START_TEST(timestamp_is_the_attempts)
{
    ck_assert_uint_eq(count(built(), "webhook-timestamp: 1700000000"), 1);
}
END_TEST

START_TEST(absent_values_have_no_header_and_empty_ones_an_empty_header)
{
    ck_assert_uint_eq(named(built(), "event-key"), 0);
    ck_assert_uint_eq(named(built(), "event-type"), 0);
    event.key = span_of("");
    ck_assert_uint_eq(count(built(), "event-key;"), 1); /* libcurl's way to spell an empty value */
}
END_TEST

START_TEST(values_are_encoded_so_that_they_can_be_decoded)
{
    event.key = (struct span){" 50% \xc3\xbc\r\n\0\x7f ", 12};
    ck_assert_uint_eq(count(built(), "event-key: %2050%25 %C3%BC%0D%0A%00%7F%20"), 1);
}
END_TEST

START_TEST(content_type_follows_payload_configuration_and_event)
{
    ck_assert_uint_eq(count(built(), "Content-Type: application/json"), 1);
    event.payload_kind = PAYLOAD_TEXT;
    ck_assert_uint_eq(count(built(), "Content-Type: text/plain"), 1);
    event.payload_kind = PAYLOAD_BYTES;
    ck_assert_uint_eq(count(built(), "Content-Type: application/octet-stream"), 1);
    event.headers = span_of("{\"content-type\": \"application/avro\"}");
    ck_assert_uint_eq(count(built(), "content-type: application/avro"), 1);
    ck_assert_uint_eq(named(built(), "content-type"), 1);
    http_headers_close(headers);
    headers = http_headers_open(&extra, NULL, "application/xml", NULL, &err);
    ck_assert_uint_eq(count(built(), "Content-Type: application/xml"), 1);
    ck_assert_uint_eq(named(built(), "content-type"), 1);
}
END_TEST

START_TEST(headers_of_the_event_are_sent_by_their_own_names)
{
    event.headers =
        span_of("{\"X-Text\": \"a b\", \"x-number\": 12, \"x-real\": 1.5, \"x-yes\": true, \"x-list\": [1, "
                "2], \"x-null\": null, \"x-empty\": \"\", \"x-large\": 12345678901234567890, \"x-as-is\": 1.10}");
    struct curl_slist *list = built();
    ck_assert_uint_eq(count(list, "X-Text: a b"), 1);
    ck_assert_uint_eq(count(list, "x-number: 12"), 1);
    ck_assert_uint_eq(count(list, "x-real: 1.5"), 1);
    ck_assert_uint_eq(count(list, "x-yes: true"), 1);
    ck_assert_uint_eq(count(list, "x-list: [1,2]"), 1);
    ck_assert_uint_eq(count(list, "x-empty;"), 1);
    ck_assert_uint_eq(count(list, "x-large: 12345678901234567890"), 1);
    ck_assert_uint_eq(count(list, "x-as-is: 1.10"), 1);
    ck_assert_uint_eq(named(list, "x-null"), 0);
}
END_TEST

START_TEST(reserved_names_of_the_event_are_left_out)
{
    static const char *const names[] = {"Host",
                                        "Content-Length",
                                        "Transfer-Encoding",
                                        "connection",
                                        "TE",
                                        "Trailer",
                                        "Upgrade",
                                        "Expect",
                                        "Keep-Alive",
                                        "Proxy-Connection",
                                        "Proxy-Authorization",
                                        "Authorization",
                                        "Cookie",
                                        "webhook-signature",
                                        "user-agent",
                                        "X-Source"};
    size_t own = 0;
    for (const struct curl_slist *line = built(); line; line = line->next)
        own++;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char json[64];
        snprintf(json, sizeof json, "{\"%s\": \"evil\"}", names[i]);
        event.headers = span_of(json);
        size_t lines = 0;
        for (const struct curl_slist *line = built(); line; line = line->next) {
            lines++;
            ck_assert_msg(!strstr(line->data, "evil"), "%s", line->data);
        }
        ck_assert_uint_eq(lines, own);
    }
    event.headers = span_of("{\"x_source\": \"evil\", \"X.Source\": \"evil\", \"xsource\": \"fine\"}");
    ck_assert_uint_eq(named(built(), "xsource"), 1);
    for (const struct curl_slist *line = built(); line; line = line->next)
        ck_assert_msg(!strstr(line->data, "evil"), "%s", line->data);
    event.headers = span_of("{\"event-key\": \"forged\", \"webhook-id\": \"forged\", \"webhook-timestamp\": 1}");
    event.key = span_of("k");
    ck_assert_uint_eq(count(built(), "event-key: k"), 1);
    ck_assert_uint_eq(named(built(), "event-key"), 1);
    ck_assert_uint_eq(named(built(), "webhook-id"), 1);
    ck_assert_uint_eq(named(built(), "webhook-timestamp"), 1);
}
END_TEST

/* Where an application is told of Webhook_Id and webhook-id under one name, it may be given the wrong one of them. */
START_TEST(names_that_an_application_may_take_for_ours_are_left_out)
{
    static const char *const names[] = {"Webhook_Id", "webhook_timestamp", "WEBHOOK_SIGNATURE",
                                        "webhook.id", "webhook~signature", "Event_Id",
                                        "event_Key",  "Content_Length"};
    event.key = span_of("k");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char json[64];
        snprintf(json, sizeof json, "{\"%s\": \"evil\", \"x_fine\": 1}", names[i]);
        event.headers = span_of(json);
        struct curl_slist *list = built();
        for (const struct curl_slist *line = list; line; line = line->next)
            ck_assert_msg(!strstr(line->data, "evil"), "%s", line->data);
        ck_assert_uint_eq(count(list, "x_fine: 1"), 1);
        struct setting_pair ours = {(char *)(uintptr_t)names[i], "evil"};
        const struct setting_map configured = {&ours, 1};
        ck_assert_ptr_null(http_headers_open(&configured, NULL, NULL, NULL, &err));
        ck_assert_msg(strstr(err.text, "is set by pgcourier itself; remove it") != NULL, "%s", err.text);
    }
}
END_TEST

#define SECRET "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"

static struct http_signer *begin_signing(char *const *secrets, size_t secret_count)
{
    struct setting_list list = {(char **)(uintptr_t)secrets, secret_count};
    struct http_signer *signer = http_signer_open(&list, &err);
    ck_assert_ptr_nonnull(signer);
    http_headers_close(headers);
    headers = http_headers_open(&extra, NULL, NULL, signer, &err);
    ck_assert_ptr_nonnull(headers);
    return signer;
}

START_TEST(request_is_signed_as_the_receiver_reads_it)
{
    char *secrets[] = {SECRET, SECRET};
    ck_assert_uint_eq(named(built(), "webhook-signature"), 0);
    struct http_signer *signer = begin_signing(secrets, 1);
    event.headers = span_of("{\"webhook-signature\": \"evil\", \"Webhook_Signature\": \"evil\"}");
    ck_assert_uint_eq(count(built(), "webhook-signature: v1,kjfsOtxkmbPT5IGASfynv2xnnDhaLNnEPRN45udXpvk="), 1);
    ck_assert_uint_eq(named(built(), "webhook-signature"), 1);
    ck_assert_uint_eq(named(built(), "webhook-id"), 1);
    ck_assert_uint_eq(named(built(), "webhook-timestamp"), 1);
    event.event_id = span_of("a \xc3\xbc"); /* signed as it is encoded */
    struct curl_slist *list = built();
    ck_assert_uint_eq(count(list, "webhook-id: a %C3%BC"), 1);
    const struct http_signed what = {span_of("a %C3%BC"), span_of("1700000000"), span_of("{}")};
    char line[64 + HTTP_SIGNATURES_BYTES_MAX] = "webhook-signature: ";
    ck_assert(http_signer_sign(signer, &what, line + strlen(line), &err));
    ck_assert_uint_eq(count(list, line), 1);
    http_signer_close(signer);
}
END_TEST

START_TEST(secret_more_refuses_no_event)
{
    static char json[65536];
    char *secrets[HTTP_SECRETS_MAX];
    for (size_t i = 0; i < HTTP_SECRETS_MAX; i++)
        secrets[i] = SECRET;
    struct http_signer *signer = begin_signing(secrets, HTTP_SECRETS_MAX);
    size_t used = (size_t)sprintf(json, "{");
    for (int i = 0; i < 4; i++)
        used += (size_t)sprintf(json + used, "%s\"x%d\": \"%0*d\"", i ? "," : "", i, i < 3 ? 8192 : 8090, i);
    sprintf(json + used, "}");
    event.headers = span_of(json);
    ck_assert_uint_eq(named(built(), "webhook-signature"), 1);
    http_signer_close(signer);
}
END_TEST

START_TEST(traceparent_is_passed_on_only_if_it_is_one)
{
    static const char good[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    event.traceparent = span_of(good);
    event.headers = span_of("{\"traceparent\": \"00-other\"}");
    char line[96];
    snprintf(line, sizeof line, "traceparent: %s", good);
    ck_assert_uint_eq(count(built(), line), 1);
    ck_assert_uint_eq(named(built(), "traceparent"), 1);
    event.headers = (struct span){NULL, 0};
    static const char *const bad[] = {"", "00-0af7", "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                                      "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\n",
                                      "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        event.traceparent = span_of(bad[i]);
        ck_assert_uint_eq(named(built(), "traceparent"), 0);
    }
}
END_TEST

START_TEST(headers_that_cannot_be_sent_refuse_the_event)
{
    static const struct {
        const char *json, *part;
    } cases[] = {
        {"{\"a b\": \"1\"}", "the name of entry 1 cannot be an HTTP header's"},
        {"{\"\": \"1\"}", "the name of entry 1"},
        {"{\"a:\": \"1\"}", "the name of entry 1"},
        {"{\"ok\": 1, \"a\\r\\nb\": \"1\"}", "the name of entry 2"},
        {"{\"\xc3\xbc\": \"1\"}", "the name of entry 1"},
        {"{\"a\": ", "headers: not JSON: byte 7 of 6"},
        {"[]", "not an object"},
        {"7", "not a"},
        {"{\"a\": \"\xff\"}", "headers: not JSON: not UTF-8"},
        {"{\"a\\u0000b\": 1}", "headers: the name of entry 1 is no text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        event.headers = span_of(cases[i].json);
        refuses(cases[i].part);
    }
}
END_TEST

START_TEST(too_many_and_too_large_headers_refuse_the_event)
{
    static char big[HTTP_HEADER_VALUE_MAX + 1];
    memset(big, 'a', sizeof big);
    event.key = (struct span){big, HTTP_HEADER_VALUE_MAX};
    built();
    event.key.size++;
    refuses("header event-key: a value of 8193 bytes, 8192 are the most");
    memset(big, '%', sizeof big); /* grows when encoded */
    event.key.size = HTTP_HEADER_VALUE_MAX / 2;
    refuses("header event-key: a value of 12288 bytes");
    event.key = (struct span){NULL, 0};

    static char json[65536];
    size_t used = (size_t)sprintf(json, "{");
    for (int i = 0; i < 5; i++)
        used += (size_t)sprintf(json + used, "%s\"x%d\": \"%08000d\"", i ? "," : "", i, i);
    sprintf(json + used, "}");
    event.headers = span_of(json);
    refuses("headers: more than 32768 bytes in all");

    used = (size_t)sprintf(json, "{");
    for (int i = 0; i < 65; i++)
        used += (size_t)sprintf(json + used, "%s\"x%d\": 1", i ? "," : "", i);
    sprintf(json + used, "}");
    event.headers = span_of(json);
    refuses("headers: 65 entries, 64 are the most");
}
END_TEST

/* `json` is all that one event may have, but for its last brace: one more is refused, unless a replay has added it. */
static void is_full_but_for_the_mark(const char *json, const char *refusal)
{
    static char with[65536];
    event.headers = (struct span){with, (size_t)snprintf(with, sizeof with, "%s}", json)};
    built();
    snprintf(with, sizeof with, "%s, \"pgcourier-replayed\": \"9223372036854775807\"}", json);
    event.headers = span_of(with);
    ck_assert_uint_eq(count(built(), "pgcourier-replayed: 9223372036854775807"), 1);
    snprintf(with, sizeof with, "%s, \"pgcourier-replayee\": \"9223372036854775807\"}", json);
    event.headers = span_of(with);
    refuses(refusal);
}

START_TEST(what_was_sent_with_all_headers_that_there_may_be_can_be_replayed)
{
    static char json[65536];
    size_t used = (size_t)sprintf(json, "{");
    for (int i = 0; i < 64; i++)
        used += (size_t)sprintf(json + used, "%s\"x%d\": 1", i ? "," : "", i);
    is_full_but_for_the_mark(json, "headers: 65 entries, 64 are the most");

    used = (size_t)sprintf(json, "{");
    for (int i = 0; i < 4; i++)
        used += (size_t)sprintf(json + used, "%s\"x%d\": \"%0*d\"", i ? "," : "", i, i < 3 ? 8192 : 8090, i);
    is_full_but_for_the_mark(json, "headers: more than 32768 bytes in all");
}
END_TEST

START_TEST(deeply_nested_headers_refuse_the_event)
{
    static char json[200003];
    memset(json, '[', 100000);
    memset(json + 100000, ']', 100000);
    event.headers = span_of(json);
    refuses("headers: not JSON: byte 1001 of 200000");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_headers");
    TCase *tcase = tcase_create("http_headers");
    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_test(tcase, webhook_id_is_the_uuid_or_else_the_number);
    tcase_add_test(tcase, timestamp_is_the_attempts);
    tcase_add_test(tcase, absent_values_have_no_header_and_empty_ones_an_empty_header);
    tcase_add_test(tcase, values_are_encoded_so_that_they_can_be_decoded);
    tcase_add_test(tcase, content_type_follows_payload_configuration_and_event);
    tcase_add_test(tcase, headers_of_the_event_are_sent_by_their_own_names);
    tcase_add_test(tcase, reserved_names_of_the_event_are_left_out);
    tcase_add_test(tcase, names_that_an_application_may_take_for_ours_are_left_out);
    tcase_add_test(tcase, request_is_signed_as_the_receiver_reads_it);
    tcase_add_test(tcase, secret_more_refuses_no_event);
    tcase_add_test(tcase, traceparent_is_passed_on_only_if_it_is_one);
    tcase_add_test(tcase, headers_that_cannot_be_sent_refuse_the_event);
    tcase_add_test(tcase, too_many_and_too_large_headers_refuse_the_event);
    tcase_add_test(tcase, what_was_sent_with_all_headers_that_there_may_be_can_be_replayed);
    tcase_add_test(tcase, deeply_nested_headers_refuse_the_event);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
