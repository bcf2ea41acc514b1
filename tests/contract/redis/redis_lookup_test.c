/* The redis sink and a server that is known by name. */
#include "tests/contract/redis/redis_fake.h"
#include "tests/support/played_resolver.h"
#include "tests/support/run_suite.h"

#include <signal.h>

static void name_it(const char *name)
{
    char by_name[64];
    snprintf(by_name, sizeof by_name, "redis://%s%s", name, strrchr(url, ':'));
    snprintf(url, sizeof url, "%s", by_name);
}

static void begin(void)
{
    static const char *const replies[] = {OK, OK, NULL};
    start();
    resolver_begin();
    fake.replies = replies;
}

static struct contract *open_with_event(const char *name)
{
    name_it(name);
    struct contract *c = contract_open(&setup);
    contract_add(c, NULL, span_of("{}"));
    return c;
}

static const char *const known[] = {"one.test", "two.test"}; /* of two addresses that of IPv4 is called */

START_TEST(server_is_called_by_its_name)
{
    struct contract *c = open_with_event(known[_i]);
    play(c);
    is(c, 0, VERDICT_ACKED, ERROR_NONE);
    ck_assert_int_eq(resolver_calls(), 1);
    contract_end(c);
}
END_TEST

START_TEST(name_that_is_not_known_is_unreachable)
{
    struct contract *c = open_with_event("none.test");
    play(c);
    is(c, 0, VERDICT_RETRY, ERROR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(c->ds[0]->cause->text, "could not translate host name \"none.test\""));
    contract_end(c);
}
END_TEST

START_TEST(lookup_that_cannot_begin_is_unreachable)
{
    resolver_refuse_threads = true;
    struct contract *c = open_with_event("one.test");
    play(c);
    is(c, 0, VERDICT_RETRY, ERROR_UNREACHABLE);
    resolver_refuse_threads = false;
    contract_end(c);
}
END_TEST

START_TEST(name_server_that_hangs_is_given_up_and_heard_in_the_end)
{
    settings.timeout_us = SECOND_US;
    struct contract *c = open_with_event("hang.test");
    play(c);
    is(c, 0, VERDICT_RETRY, ERROR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(c->ds[0]->cause->text, "no answer of a name server within 1000 ms"));
    resolver_release();
    contract_add(c, NULL, span_of("{}"));
    play(c);
    is(c, 1, VERDICT_ACKED, ERROR_NONE);
    ck_assert_int_eq(resolver_calls(), 1);
    contract_end(c);
}
END_TEST

static void turn_at(struct contract *c, instant_us now)
{
    struct error err;
    pollset_clear(c->ps);
    sink_prepare(c->sink, c->ps);
    pollset_deadline(c->ps, now + MS_US);
    ck_assert_msg(pollset_wait(c->ps, now, &err), "%s", err.text);
    sink_progress(c->sink, c->ps, now);
    fake_turn();
}

START_TEST(address_that_is_known_for_long_is_asked_for_anew)
{
    int before = resolver_threads();
    struct contract *c = open_with_event("hang.test");
    ck_assert_uint_eq(contract_submit(c), 1);
    instant_us now = clock_now();
    turn_at(c, now);
    turn_at(c, now + settings.timeout_us);
    is(c, 0, VERDICT_RETRY, ERROR_UNREACHABLE);
    resolver_release();
    resolver_wait_for_threads_to_end(before);
    contract_add(c, NULL, span_of("{}"));
    ck_assert_uint_eq(contract_submit(c), 1);
    for (now += 2 * MINUTE_US; c->sink->in_flight > 0; now += MS_US)
        turn_at(c, now);
    is(c, 1, VERDICT_ACKED, ERROR_NONE);
    ck_assert_int_eq(resolver_calls(), 2);
    contract_end(c);
}
END_TEST

/* Each attempt gives up waiting: it is not the first one's fault that the name server takes minutes. */
START_TEST(name_server_that_takes_minutes_is_heard)
{
    int before = resolver_threads();
    struct contract *c = open_with_event("hang.test");
    instant_us now = clock_now();
    for (size_t i = 0; i < 4; i++, now += 40 * SECOND_US) {
        ck_assert_uint_eq(contract_submit(c), 1);
        turn_at(c, now);
        turn_at(c, now + settings.timeout_us);
        is(c, i, VERDICT_RETRY, ERROR_UNREACHABLE);
        contract_add(c, NULL, span_of("{}"));
    }
    resolver_release();
    resolver_wait_for_threads_to_end(before);
    ck_assert_uint_eq(contract_submit(c), 1);
    for (; c->sink->in_flight > 0; now += MS_US)
        turn_at(c, now);
    is(c, 4, VERDICT_ACKED, ERROR_NONE);
    ck_assert_int_eq(resolver_calls(), 1);
    contract_end(c);
}
END_TEST

START_TEST(close_waits_for_no_name_server)
{
    struct contract *c = open_with_event("hang.test");
    contract_submit(c);
    contract_turn(c, 1);
    ck_assert_int_lt(contract_close_us(c), 2 * SECOND_US);
    contract_end(c);
    resolver_release();
    resolver_wait_for_calls_to_end(1, 0);
}
END_TEST

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    Suite *suite = suite_create("redis_lookup");
    TCase *tcase = tcase_create("redis lookup");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, begin, stop);
    tcase_add_loop_test(tcase, server_is_called_by_its_name, 0, 2);
    tcase_add_test(tcase, name_that_is_not_known_is_unreachable);
    tcase_add_test(tcase, lookup_that_cannot_begin_is_unreachable);
    tcase_add_test(tcase, name_server_that_hangs_is_given_up_and_heard_in_the_end);
    tcase_add_test(tcase, address_that_is_known_for_long_is_asked_for_anew);
    tcase_add_test(tcase, name_server_that_takes_minutes_is_heard);
    tcase_add_test(tcase, close_waits_for_no_name_server);
    return run_suite(suite);
}
