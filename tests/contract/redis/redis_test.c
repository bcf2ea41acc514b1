/* The redis sink against a real redis-server on a Unix socket of its own. */
#include "sinks/redis/redis_run.h"
#include "sinks/redis/redis_settings.h"
#include "tests/contract/redis/redis_server.h"
#include "tests/contract/sink_contract.h"
#include "tests/support/run_suite.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

extern const struct sink_type sink_redis;

static struct redis_settings settings;
static struct contract_setup stream = {
    .name = "redis stream", .type = &sink_redis, .settings = &settings, .destination = "orders"};
static struct contract_setup list = {
    .name = "redis list", .type = &sink_redis, .settings = &settings, .destination = "orders"};
static struct contract_setup publish = {
    .name = "redis publish", .type = &sink_redis, .settings = &settings, .destination = "orders"};

static void start(struct contract_setup *setup)
{
    settings = (struct redis_settings){.url = url, .timeout_us = 5 * SECOND_US};
    settings.command = setup == &list ? 1 : setup == &publish ? 2 : 0;
    tell("FLUSHALL");
}

static void start_stream(void)
{
    start(&stream);
}

/* ---- what only redis promises ---- */

/* The named field of a stream entry; a NULL `str` if it is not there. */
static struct span entry_field(const redisReply *entry, const char *name)
{
    const redisReply *fields = entry->element[1];
    for (size_t i = 0; i + 1 < fields->elements; i += 2)
        if (strcmp(fields->element[i]->str, name) == 0)
            return (struct span){fields->element[i + 1]->str, (size_t)fields->element[i + 1]->len};
    return (struct span){0};
}

static void field_is(const redisReply *entry, const char *name, struct span wanted)
{
    struct span got = entry_field(entry, name);
    ck_assert_msg((got.data == NULL) == (wanted.data == NULL) && span_equal(got, wanted), "%s is %.*s", name,
                  (int)got.size, got.data);
}

START_TEST(stream_entry_has_the_fields_that_the_event_has)
{
    struct contract *c = contract_open(&stream);
    struct span bytes = SPAN_LITERAL("\0\r\n$5\r\n\xff");
    struct event *full = contract_event(contract_add(c, "7", bytes));
    full->event_id = span_of("0b9a2c60-6a4e-4d4e-9c0c-0d4a3c1f2b11");
    full->type = span_of("paid");
    full->headers = span_of("{\"a\":1}");
    full->traceparent = span_of("00-ab-cd-01");
    contract_add(c, NULL, (struct span){0});
    contract_add(c, "", span_of(""));
    ck_assert(contract_run(c, PATIENCE_MS));
    redisReply *reply = look("XRANGE orders - +");
    ck_assert_uint_eq(reply->elements, 3);
    field_is(reply->element[0], "id", span_of("1"));
    field_is(reply->element[0], "event_id", full->event_id);
    field_is(reply->element[0], "type", full->type);
    field_is(reply->element[0], "key", span_of("7"));
    field_is(reply->element[0], "payload", bytes);
    field_is(reply->element[0], "headers", full->headers);
    field_is(reply->element[0], "traceparent", full->traceparent);
    ck_assert_uint_eq(reply->element[1]->element[1]->elements, 2);
    field_is(reply->element[1], "id", span_of("2"));
    field_is(reply->element[2], "key", span_of(""));
    field_is(reply->element[2], "payload", span_of(""));
    freeReplyObject(reply);
    contract_end(c);
}
END_TEST

START_TEST(list_holds_payloads_in_order)
{
    settings.command = 1;
    struct contract *c = contract_open(&list);
    for (int i = 0; i < 100; i++)
        contract_add(c, "7", span_of(arena_printf(c->arena, "%d", i)));
    ck_assert(contract_run(c, PATIENCE_MS));
    contract_end(c);
    redisReply *reply = look("LRANGE orders 0 -1");
    ck_assert_uint_eq(reply->elements, 100);
    for (size_t i = 0; i < 100; i++)
        ck_assert_int_eq(atoi(reply->element[i]->str), (int)i);
    freeReplyObject(reply);
}
END_TEST

START_TEST(publish_reaches_subscribers)
{
    settings.command = 2;
    redisContext *subscriber = redisConnectUnix(path);
    freeReplyObject(redisCommand(subscriber, "SUBSCRIBE orders"));
    struct contract *c = contract_open(&publish);
    contract_add(c, "7", span_of("hello"));
    ck_assert(contract_run(c, PATIENCE_MS));
    contract_end(c);
    void *message = NULL;
    ck_assert_int_eq(redisGetReply(subscriber, &message), REDIS_OK);
    ck_assert_str_eq(((redisReply *)message)->element[2]->str, "hello");
    freeReplyObject(message);
    redisFree(subscriber);
}
END_TEST

START_TEST(each_event_arrives_once_and_large_ones_too)
{
    struct contract *c = contract_open(&stream);
    size_t size = (size_t)5 << 20;
    char *large = memset(malloc(size), 'x', size);
    for (int i = 0; i < 2000; i++)
        contract_add(c, arena_printf(c->arena, "key-%d", i % 500),
                     i % 700 ? span_of("{}") : (struct span){large, size});
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 2000);
    contract_end(c);
    ck_assert_int_eq(count("XLEN orders"), 2000);
    free(large);
}
END_TEST

START_TEST(maxlen_trims_the_stream)
{
    settings.maxlen = 100;
    struct contract *c = contract_open(&stream);
    for (int i = 0; i < 1000; i++)
        contract_add(c, NULL, span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    contract_end(c);
    ck_assert_int_lt(count("XLEN orders"), 300);
}
END_TEST

START_TEST(wrong_type_stops_its_destination_and_no_other)
{
    tell("SET taken x");
    struct contract *c = contract_open(&stream);
    struct delivery *bad = contract_add(c, "1", span_of("{}"));
    bad->destination = span_of("taken");
    struct delivery *good = contract_add(c, "2", span_of("{}"));
    struct delivery *later = contract_add(c, "1", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(bad->verdict, VERDICT_RETRY);
    ck_assert_int_eq(bad->cause->kind, ERROR_ROUTE);
    ck_assert_int_eq(good->verdict, VERDICT_ACKED);
    ck_assert_int_eq(later->verdict, VERDICT_NONE);
    contract_end(c);
}
END_TEST

START_TEST(run_to_a_wrong_type_fails_as_a_whole)
{
    tell("SET orders x");
    struct contract *c = contract_open(&stream);
    contract_add_run(c, "1", 3);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_RETRY), 3);
    ck_assert_int_eq(c->ds[0]->cause->kind, ERROR_ROUTE);
    ck_assert_ptr_nonnull(strstr(c->ds[0]->cause->text, "WRONGTYPE"));
    contract_end(c);
}
END_TEST

START_TEST(run_is_added_in_order_and_trims)
{
    settings.maxlen = 10;
    struct contract *c = contract_open(&stream);
    contract_add_run(c, "1", 50);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 50);
    contract_end(c);
    redisReply *reply = look("XREVRANGE orders + - COUNT 10");
    ck_assert_uint_eq(reply->elements, 10);
    for (size_t i = 0; i < 10; i++) {
        char id[8];
        snprintf(id, sizeof id, "%zu", 50 - i);
        field_is(reply->element[i], "id", span_of(id));
    }
    freeReplyObject(reply);
}
END_TEST

/* No event of one stream is refused while the next would be taken, so the script is given what no event would make. */
START_TEST(script_stops_at_the_first_refusal)
{
    redisReply *reply = redisCommand(eye, "EVAL %s 1 orders XADD 3 * a 1 2 * b 3 * c 3", redis_run_script);
    ck_assert_int_eq(reply->type, REDIS_REPLY_STRING);
    size_t done;
    struct span error;
    ck_assert(redis_run_read(reply, 3, &done, &error));
    ck_assert_uint_eq(done, 1);
    ck_assert_msg(error.size > 4 && memcmp(error.data, "ERR ", 4) == 0, "%s", reply->str);
    freeReplyObject(reply);
    ck_assert_int_eq(count("XLEN orders"), 1);
}
END_TEST

/* A run of three events whose route is stopped, because the user has no more than these rights. */
static struct contract *refuse_run_of(const char *rights)
{
    static char user[] = "few", password[] = "s3cret";
    char acl[100];
    snprintf(acl, sizeof acl, "ACL SETUSER %s reset on >%s %s", user, password, rights);
    tell(acl);
    settings.username = user;
    settings.password = password;
    struct contract *c = contract_open(&stream);
    ck_assert(c->sink->traits & SINK_TAKES_RUNS);
    contract_add_run(c, "1", 3);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_RETRY), 3);
    ck_assert_int_eq(c->ds[0]->cause->kind, ERROR_ROUTE);
    return c;
}

START_TEST(user_without_scripts_sends_one_by_one)
{
    struct contract *c = refuse_run_of("~orders +xadd +ping");
    ck_assert(!(c->sink->traits & SINK_TAKES_RUNS));
    ck_assert_int_eq(contract_probe(c, "orders", PATIENCE_MS), REACH_YES);
    struct delivery *d = contract_add(c, "2", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    contract_end(c);
    ck_assert_int_eq(count("XLEN orders"), 1);
}
END_TEST

/* What an event alone is told as NOPERM comes in other words out of a script. */
START_TEST(user_with_scripts_but_without_the_command_stops_the_route)
{
    struct contract *c = refuse_run_of("~orders +eval +ping");
    ck_assert_ptr_nonnull(strstr(c->ds[0]->cause->text, "let the user do this in the server's ACL"));
    ck_assert(c->sink->traits & SINK_TAKES_RUNS);
    contract_end(c);
}
END_TEST

START_TEST(run_to_a_key_that_is_not_allowed_says_nothing_about_scripts)
{
    struct contract *c = refuse_run_of("~others +xadd +eval +ping");
    ck_assert_ptr_null(strstr(c->ds[0]->cause->text, "+eval"));
    ck_assert(c->sink->traits & SINK_TAKES_RUNS);
    contract_end(c);
}
END_TEST

START_TEST(full_server_is_overloaded_until_it_has_room)
{
    tell("CONFIG SET maxmemory-policy noeviction");
    tell("CONFIG SET maxmemory 1");
    struct contract *c = contract_open(&stream);
    struct delivery *first = contract_add(c, "1", span_of("{}"));
    bool finished = contract_run(c, PATIENCE_MS);
    tell("CONFIG SET maxmemory 0");
    ck_assert(finished);
    ck_assert_int_eq(first->verdict, VERDICT_RETRY);
    ck_assert_int_eq(first->cause->kind, ERROR_OVERLOADED);
    struct delivery *second = contract_add(c, "2", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(second->verdict, VERDICT_ACKED);
    contract_end(c);
}
END_TEST

START_TEST(user_password_and_database_are_used)
{
    char with_database[160];
    tell("ACL SETUSER relay on >s3cret ~orders +xadd +ping +select");
    snprintf(with_database, sizeof with_database, "%s?db=3", url);
    settings.url = with_database;
    settings.username = (char[]){"relay"};
    settings.password = (char[]){"s3cret"};
    struct contract *c = contract_open(&stream);
    struct delivery *allowed = contract_add(c, "1", span_of("{}"));
    struct delivery *forbidden = contract_add(c, "2", span_of("{}"));
    forbidden->destination = span_of("elsewhere");
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(allowed->verdict, VERDICT_ACKED);
    ck_assert_int_eq(forbidden->verdict, VERDICT_RETRY);
    ck_assert_int_eq(forbidden->cause->kind, ERROR_ROUTE);
    contract_end(c);
    ck_assert_int_eq(count("XLEN orders"), 0);
    tell("SELECT 3");
    ck_assert_int_eq(count("XLEN orders"), 1);
    tell("SELECT 0");
}
END_TEST

START_TEST(wrong_password_stops_the_route)
{
    tell("ACL SETUSER relay on >s3cret ~orders +xadd +ping +select");
    settings.username = (char[]){"relay"};
    settings.password = (char[]){"gue55"};
    struct contract *c = contract_open(&stream);
    struct delivery *d = contract_add(c, "1", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_RETRY);
    ck_assert_int_eq(d->cause->kind, ERROR_ROUTE);
    ck_assert_ptr_nonnull(strstr(d->cause->text, "check username and password"));
    ck_assert_ptr_null(strstr(d->cause->text, "gue55"));
    ck_assert_int_eq(contract_probe(c, "orders", PATIENCE_MS), REACH_NO);
    contract_end(c);
}
END_TEST

START_TEST(killed_connection_is_replaced)
{
    struct contract *c = contract_open(&stream);
    contract_add(c, "1", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(count("CLIENT KILL TYPE normal SKIPME yes"), 1);
    struct delivery *d = contract_add(c, "2", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    /* Which of the two depends on whether the end of the old connection was seen before the event was sent on it. */
    ck_assert(d->verdict == VERDICT_ACKED || d->verdict == VERDICT_UNKNOWN);
    d = contract_add(c, "3", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    contract_end(c);
}
END_TEST

START_TEST(probe_finds_a_server_that_answers)
{
    struct contract *c = contract_open(&stream);
    ck_assert_int_eq(contract_probe(c, "orders", PATIENCE_MS), REACH_YES);
    ck_assert_int_eq(contract_probe(c, "orders", PATIENCE_MS), REACH_YES); /* over the same connection */
    contract_add(c, "1", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_ACKED);
    contract_end(c);
}
END_TEST

static const struct {
    const char *url, *username, *wanted;
} broken[] = {
    {"http://h", NULL,
     "sink redis stream: url is not a Redis address; write redis://[user[:password]@]host[:port][/database], rediss:// "
     "for TLS or unix:///path[?db=N], with special characters of the password as %XX"},
    {"redis://h", "relay", "sink redis stream: username without a password; set password"},
#ifndef HAVE_HIREDIS_SSL
    {"rediss://:p@cache.example:6380", NULL,
     "sink redis stream: rediss:// needs TLS and this pgcourier was built with a hiredis that has none (before 1.0); "
     "run stunnel towards cache.example and give its address as redis://127.0.0.1:PORT"},
#endif
};

START_TEST(settings_that_cannot_work_are_refused_in_one_line)
{
    struct error err;
    char *wrong = strdup(broken[_i].url), *username = broken[_i].username ? strdup(broken[_i].username) : NULL;
    settings.url = wrong;
    settings.username = username;
    ck_assert_ptr_null(sink_open(&sink_redis, stream.name, &settings, &err));
    ck_assert_str_eq(err.text, broken[_i].wanted);
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    free(wrong);
    free(username);
}
END_TEST

static TCase *redis_tcase(void)
{
    TCase *tcase = tcase_create("only redis");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, start_stream, NULL);
    tcase_add_test(tcase, stream_entry_has_the_fields_that_the_event_has);
    tcase_add_test(tcase, list_holds_payloads_in_order);
    tcase_add_test(tcase, publish_reaches_subscribers);
    tcase_add_test(tcase, each_event_arrives_once_and_large_ones_too);
    tcase_add_test(tcase, maxlen_trims_the_stream);
    tcase_add_test(tcase, wrong_type_stops_its_destination_and_no_other);
    tcase_add_test(tcase, run_to_a_wrong_type_fails_as_a_whole);
    tcase_add_test(tcase, run_is_added_in_order_and_trims);
    tcase_add_test(tcase, script_stops_at_the_first_refusal);
    tcase_add_test(tcase, user_without_scripts_sends_one_by_one);
    tcase_add_test(tcase, user_with_scripts_but_without_the_command_stops_the_route);
    tcase_add_test(tcase, run_to_a_key_that_is_not_allowed_says_nothing_about_scripts);
    tcase_add_test(tcase, full_server_is_overloaded_until_it_has_room);
    tcase_add_test(tcase, user_password_and_database_are_used);
    tcase_add_test(tcase, wrong_password_stops_the_route);
    tcase_add_test(tcase, killed_connection_is_replaced);
    tcase_add_test(tcase, probe_finds_a_server_that_answers);
    tcase_add_loop_test(tcase, settings_that_cannot_work_are_refused_in_one_line, 0,
                        (int)(sizeof broken / sizeof broken[0]));
    return tcase;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    server_start();
    Suite *suite = suite_create("redis");
    struct contract_setup *setups[] = {&stream, &list, &publish};
    for (size_t i = 0; i < sizeof setups / sizeof setups[0]; i++) {
        setups[i]->start = start;
        suite_add_tcase(suite, contract_tcase(setups[i]));
    }
    suite_add_tcase(suite, redis_tcase());
    int status = run_suite(suite);
    server_stop();
    return status;
}
