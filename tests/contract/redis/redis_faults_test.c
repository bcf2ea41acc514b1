/* The redis sink against a server that says what a script tells it to, on a loopback port.
 *
 * It runs in the test's own thread, between the sink's turns, so that nothing depends on timing. */
#include "tests/contract/redis/redis_fake.h"

#include "relay/base/arena.h"
#include "tests/support/run_suite.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static struct contract *play_script(const char *const *replies, int events)
{
    fake.replies = replies;
    struct contract *c = contract_open(&setup);
    for (int i = 0; i < events; i++)
        contract_add(c, NULL, span_of("{}"));
    play(c);
    return c;
}

/* ---- what redis answers ---- */

static const struct {
    const char *reply;
    enum verdict verdict;
    enum error_kind kind;
} answers[] = {
    {"-LOADING Redis is loading the dataset in memory\r\n", VERDICT_RETRY, ERROR_OVERLOADED},
    {"-MASTERDOWN Link with MASTER is down\r\n", VERDICT_RETRY, ERROR_OVERLOADED},
    {"-OOM command not allowed\r\n", VERDICT_RETRY, ERROR_OVERLOADED},
    {"-MOVED 1 127.0.0.1:1\r\n", VERDICT_RETRY, ERROR_ROUTE},
    {"-NOPERM no\r\n", VERDICT_RETRY, ERROR_ROUTE},
    {"-ERR unknown command 'XADD'\r\n", VERDICT_RETRY, ERROR_ROUTE},
    {"-ERR syntax error\r\n", VERDICT_REJECTED, ERROR_REFUSED},
    {"-ERR something else\r\n", VERDICT_RETRY, ERROR_REFUSED},
};

START_TEST(error_reply_concerns_its_own_event_only)
{
    struct contract *c = play_script((const char *const[]){OK, answers[_i].reply, OK, NULL}, 3);
    is(c, 0, VERDICT_ACKED, ERROR_NONE);
    is(c, 1, answers[_i].verdict, answers[_i].kind);
    is(c, 2, VERDICT_ACKED, ERROR_NONE);
    ck_assert_int_eq(fake.accepted, 1);
    contract_end(c);
}
END_TEST

START_TEST(replies_may_come_byte_by_byte)
{
    fake.chunk = 1;
    struct contract *c = play_script((const char *const[]){OK, "-OOM no room\r\n", OK, NULL}, 3);
    is(c, 0, VERDICT_ACKED, ERROR_NONE);
    is(c, 1, VERDICT_RETRY, ERROR_OVERLOADED);
    is(c, 2, VERDICT_ACKED, ERROR_NONE);
    contract_end(c);
}
END_TEST

START_TEST(lost_reply_leaves_the_outcome_unknown)
{
    char cut[sizeof OK];
    snprintf(cut, sizeof cut, "%.*s", _i, OK);
    fake.hang_up = true;
    struct contract *c = play_script((const char *const[]){OK, cut, NULL}, 3);
    is(c, 0, VERDICT_ACKED, ERROR_NONE);
    is(c, 1, VERDICT_UNKNOWN, ERROR_UNREACHABLE);
    is(c, 2, VERDICT_UNKNOWN, ERROR_UNREACHABLE);
    contract_end(c);
}
END_TEST

START_TEST(replica_is_left_and_the_next_event_goes_over_a_new_connection)
{
    struct contract *c =
        play_script((const char *const[]){"-READONLY You can't write\r\n", "-READONLY no\r\n", NULL}, 2);
    is(c, 0, VERDICT_RETRY, ERROR_UNREACHABLE);
    is(c, 1, VERDICT_RETRY, ERROR_UNREACHABLE);
    fake.replies = (const char *const[]){OK, NULL};
    fake.next = 0;
    contract_add(c, NULL, span_of("{}"));
    play(c);
    is(c, 2, VERDICT_ACKED, ERROR_NONE);
    ck_assert_int_eq(fake.accepted, 2);
    contract_end(c);
}
END_TEST

static const char *const garbage[] = {
    "HTTP/1.1 400 Bad Request\r\n\r\n",
    "*1000000000\r\n",
    "*0\r\n",
    ":1\r\n",         /* a number where an id is due */
    "$-1\r\n",        /* nil */
    "+OK\r\n",        /* a status where an id is due */
    "$x\r\n",         /* no length */
    OK OK OK OK OK OK /* more than was asked for */
};

START_TEST(reply_that_makes_no_sense_ends_the_connection)
{
    struct contract *c = play_script((const char *const[]){garbage[_i], NULL}, 2);
    bool surplus = strlen(garbage[_i]) > 40 && garbage[_i][0] == '$';
    is(c, 0, surplus ? VERDICT_ACKED : VERDICT_UNKNOWN, surplus ? ERROR_NONE : ERROR_PROTOCOL);
    is(c, 1, surplus ? VERDICT_ACKED : VERDICT_UNKNOWN, surplus ? ERROR_NONE : ERROR_PROTOCOL);
    fake.replies = (const char *const[]){OK, NULL};
    fake.next = 0;
    contract_add(c, NULL, span_of("{}"));
    play(c);
    is(c, 2, VERDICT_ACKED, ERROR_NONE);
    ck_assert_int_eq(fake.accepted, 2);
    contract_end(c);
}
END_TEST

START_TEST(wrong_reply_to_the_last_event_is_no_answer)
{
    struct contract *c = play_script((const char *const[]){OK, garbage[_i], NULL}, 2);
    is(c, 0, VERDICT_ACKED, ERROR_NONE);
    is(c, 1, VERDICT_UNKNOWN, ERROR_PROTOCOL);
    contract_end(c);
}
END_TEST

START_TEST(server_that_speaks_unasked_is_no_redis)
{
    fake.hello = "+OK\r\n" OK;
    struct contract *c = play_script(NULL, 1);
    is(c, 0, VERDICT_RETRY, ERROR_UNREACHABLE);
    contract_end(c);
}
END_TEST

START_TEST(endless_reply_is_cut_off)
{
    char some[1025];
    memset(some, 'x', sizeof some - 1);
    some[sizeof some - 1] = '\0';
    struct contract *c = contract_open(&setup);
    contract_add(c, NULL, span_of("{}"));
    contract_submit(c);
    fake.replies = (const char *const[]){"$536870912\r\n", NULL};
    for (int i = 0; i < 20000 && c->sink->in_flight > 0; i++) {
        contract_turn(c, 1);
        if (fake.commands > 0 && fake.out_size < sizeof fake.out / 2)
            fake_say(some);
        fake_turn();
    }
    is(c, 0, VERDICT_UNKNOWN, ERROR_PROTOCOL);
    contract_end(c);
}
END_TEST

START_TEST(silent_server_is_given_up_after_the_timeout)
{
    settings.timeout_us = 50 * MS_US;
    struct contract *c = play_script(NULL, 2);
    is(c, 0, VERDICT_UNKNOWN, ERROR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(c->ds[0]->cause->text, ": no answer within 50 ms"));
    contract_end(c);
}
END_TEST

#define LARGE_BYTES ((size_t)32 << 20) /* more than the kernel takes for a peer that does not read */

/* Three events, the second of them large. */
static struct contract *submit_to_the_deaf(void)
{
    char *large = memset(malloc(LARGE_BYTES), 'x', LARGE_BYTES);
    fake.deaf = true;
    struct contract *c = contract_open(&setup);
    contract_add(c, NULL, span_of("{}"));
    contract_add(c, NULL, (struct span){large, LARGE_BYTES});
    contract_add(c, NULL, span_of("{}"));
    contract_submit(c);
    free(large);
    return c;
}

START_TEST(command_that_was_not_sent_whole_is_retried)
{
    struct contract *c = submit_to_the_deaf();
    for (int i = 0; i < 50; i++) {
        contract_turn(c, 1);
        fake_turn();
    }
    ck_assert_uint_eq(c->sink->in_flight, 3);
    fake_hang_up();
    play(c);
    is(c, 0, VERDICT_UNKNOWN, ERROR_UNREACHABLE);
    is(c, 1, VERDICT_RETRY, ERROR_UNREACHABLE);
    is(c, 2, VERDICT_RETRY, ERROR_UNREACHABLE);
    contract_end(c);
}
END_TEST

/* Turns until the first of three events is acked and a piece of the second has arrived, which gets this answer. */
static struct contract *answer_half_a_command(const char *reply)
{
    static const char *const taken[] = {OK, NULL};
    fake.replies = taken;
    struct contract *c = submit_to_the_deaf();
    instant_us end = clock_now() + PATIENCE_MS * MS_US;
    while ((c->ds[0]->verdict == VERDICT_NONE || fake.in_size == 0) && clock_now() < end) {
        contract_turn(c, 1);
        fake_turn();
    }
    is(c, 0, VERDICT_ACKED, ERROR_NONE);
    fake_say(reply);
    while (c->ds[1]->verdict == VERDICT_NONE && clock_now() < end) {
        fake_turn();
        contract_turn(c, 1);
    }
    return c;
}

START_TEST(half_a_command_is_acked_by_nothing)
{
    struct contract *c = answer_half_a_command(OK);
    is(c, 1, VERDICT_RETRY, ERROR_UNREACHABLE);
    is(c, 2, VERDICT_RETRY, ERROR_UNREACHABLE);
    contract_end(c);
}
END_TEST

/* What is left of it would be read as something else, so it is not sent. */
START_TEST(half_a_command_may_be_refused_and_the_next_event_goes_over_a_new_connection)
{
    struct contract *c = answer_half_a_command("-ERR Protocol error: invalid bulk length\r\n");
    is(c, 1, VERDICT_REJECTED, ERROR_REFUSED);
    size_t rest = 0;
    instant_us end = clock_now() + PATIENCE_MS * MS_US;
    for (ssize_t n;
         (n = read(fake.peer, fake.in, sizeof fake.in)) > 0 || (n < 0 && errno == EAGAIN && clock_now() < end);
         contract_turn(c, 1))
        rest += n > 0 ? (size_t)n : 0;
    ck_assert_uint_lt(rest, LARGE_BYTES / 2);
    fake_hang_up();
    fake.deaf = false;
    fake.next = 0;
    play(c);
    is(c, 2, VERDICT_ACKED, ERROR_NONE);
    ck_assert_int_eq(fake.accepted, 2);
    contract_end(c);
}
END_TEST

/* ---- connecting ---- */

static const struct {
    const char *hello;
    enum error_kind kind;
    const char *text;
} hellos[] = {
    {"-LOADING Redis is loading\r\n", ERROR_OVERLOADED, ": LOADING Redis is loading"},
    {"-NOAUTH Authentication required.\r\n", ERROR_ROUTE, "; set password"},
    {"-ERR Client sent AUTH, but no password is set\r\n", ERROR_ROUTE, "no password is set"},
    {"-ERR max number of clients reached\r\n", ERROR_OVERLOADED, "; raise maxclients"},
    {"HTTP/1.1 400 Bad Request\r\n\r\n", ERROR_UNREACHABLE, "protocol error"},
    {"$4\r\nPONG\r\n", ERROR_UNREACHABLE, "does not answer like Redis"},
};

START_TEST(refusal_at_the_door_sends_no_event)
{
    fake.hello = hellos[_i].hello;
    struct contract *c = play_script(NULL, 2);
    is(c, 0, VERDICT_RETRY, hellos[_i].kind);
    is(c, 1, VERDICT_RETRY, hellos[_i].kind);
    ck_assert_msg(strstr(c->ds[0]->cause->text, hellos[_i].text) != NULL, "%s", c->ds[0]->cause->text);
    ck_assert_int_eq(fake.commands, 0);
    contract_end(c);
}
END_TEST

START_TEST(server_that_never_says_hello_is_given_up)
{
    settings.timeout_us = 50 * MS_US;
    fake.hello = NULL;
    struct contract *c = play_script(NULL, 1);
    is(c, 0, VERDICT_RETRY, ERROR_UNREACHABLE);
    contract_end(c);
}
END_TEST

static enum reach probe(struct contract *c)
{
    instant_us end = clock_now() + PATIENCE_MS * MS_US;
    enum reach reach = REACH_PENDING;
    while (clock_now() < end &&
           (reach = sink_probe(c->sink, span_of("orders"), clock_now(), &c->unreached)) == REACH_PENDING) {
        contract_turn(c, 1);
        fake_turn();
    }
    return reach;
}

START_TEST(probe_asks_the_server_each_time)
{
    struct contract *c = contract_open(&setup);
    ck_assert_int_eq(probe(c), REACH_YES);
    fake.hello = "-LOADING Redis is loading\r\n";
    ck_assert_int_eq(probe(c), REACH_NO);
    ck_assert_ptr_nonnull(strstr(c->unreached.text, ": PING: LOADING Redis is loading"));
    fake.hello = "+PONG\r\n";
    ck_assert_int_eq(probe(c), REACH_YES);
    ck_assert_int_eq(fake.accepted, 1);
    fake_hang_up();
    close(fake.listener);
    while (probe(c) == REACH_YES)
        ;
    ck_assert_int_eq(probe(c), REACH_NO);
    ck_assert_ptr_nonnull(strstr(c->unreached.text, ": Connection refused"));
    contract_end(c);
    fake_listen();
}
END_TEST

START_TEST(nobody_listening_is_unreachable_and_retried_with_patience)
{
    close(fake.listener);
    struct contract *c = contract_open(&setup);
    for (int i = 0; i < 5; i++) {
        contract_add(c, NULL, span_of("{}"));
        ck_assert(contract_run(c, PATIENCE_MS));
        is(c, (size_t)i, VERDICT_RETRY, ERROR_UNREACHABLE);
    }
    ck_assert_ptr_nonnull(strstr(c->ds[0]->cause->text, ": Connection refused"));
    contract_end(c);
    fake_listen();
}
END_TEST

START_TEST(idle_connection_that_the_server_ends_costs_no_event)
{
    struct contract *c = play_script((const char *const[]){OK, OK, NULL}, 1);
    fake_hang_up();
    contract_turn(c, 50);
    contract_add(c, NULL, span_of("{}"));
    play(c);
    is(c, 1, VERDICT_ACKED, ERROR_NONE);
    ck_assert_int_eq(fake.accepted, 2);
    contract_end(c);
}
END_TEST

START_TEST(close_waits_for_answers_but_not_for_ever)
{
    struct contract *c = contract_open(&setup);
    contract_add(c, NULL, span_of("{}"));
    contract_submit(c);
    while (fake.commands == 0) {
        contract_turn(c, 1);
        fake_turn();
    }
    int64_t took_us = contract_close_us(c);
    is(c, 0, VERDICT_UNKNOWN, ERROR_UNREACHABLE);
    ck_assert_int_lt(took_us, 2 * SECOND_US);
    contract_end(c);
}
END_TEST

static TCase *faults_tcase(void)
{
    TCase *tcase = tcase_create("redis faults");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_loop_test(tcase, error_reply_concerns_its_own_event_only, 0, (int)(sizeof answers / sizeof answers[0]));
    tcase_add_test(tcase, replies_may_come_byte_by_byte);
    tcase_add_loop_test(tcase, lost_reply_leaves_the_outcome_unknown, 0, (int)sizeof OK - 1);
    tcase_add_test(tcase, replica_is_left_and_the_next_event_goes_over_a_new_connection);
    tcase_add_loop_test(tcase, reply_that_makes_no_sense_ends_the_connection, 0,
                        (int)(sizeof garbage / sizeof garbage[0]));
    tcase_add_loop_test(tcase, wrong_reply_to_the_last_event_is_no_answer, 0,
                        (int)(sizeof garbage / sizeof garbage[0]) - 1);
    tcase_add_test(tcase, server_that_speaks_unasked_is_no_redis);
    tcase_add_test(tcase, endless_reply_is_cut_off);
    tcase_add_test(tcase, silent_server_is_given_up_after_the_timeout);
    tcase_add_test(tcase, command_that_was_not_sent_whole_is_retried);
    tcase_add_test(tcase, half_a_command_is_acked_by_nothing);
    tcase_add_test(tcase, half_a_command_may_be_refused_and_the_next_event_goes_over_a_new_connection);
    tcase_add_loop_test(tcase, refusal_at_the_door_sends_no_event, 0, (int)(sizeof hellos / sizeof hellos[0]));
    tcase_add_test(tcase, server_that_never_says_hello_is_given_up);
    tcase_add_test(tcase, probe_asks_the_server_each_time);
    tcase_add_test(tcase, nobody_listening_is_unreachable_and_retried_with_patience);
    tcase_add_test(tcase, idle_connection_that_the_server_ends_costs_no_event);
    tcase_add_test(tcase, close_waits_for_answers_but_not_for_ever);
    return tcase;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    Suite *suite = suite_create("redis_faults");
    suite_add_tcase(suite, faults_tcase());
    return run_suite(suite);
}
