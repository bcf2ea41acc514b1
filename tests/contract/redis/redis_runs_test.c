/* Runs of the redis sink: several events of one key as one command. */
#include "sinks/redis/redis_run.h"
#include "tests/contract/redis/redis_fake.h"
#include "tests/support/run_suite.h"

#include <signal.h>

static struct contract *play_run(const char *const *replies, int length)
{
    fake.replies = replies;
    struct contract *c = contract_open(&setup);
    contract_add_run(c, "a", length);
    play(c);
    return c;
}

START_TEST(run_is_one_command)
{
    struct contract *c = play_run((const char *const[]){":3\r\n", NULL}, 3);
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 3);
    ck_assert_int_eq(fake.commands, 1);
    contract_end(c);
}
END_TEST

static const struct {
    const char *reply;
    enum verdict verdict;
    enum error_kind kind;
} refusals[] = {
    {"$17\r\n1 OOM not allowed\r\n", VERDICT_RETRY, ERROR_OVERLOADED},
    {"$39\r\n1 @user_script: 1: -OOM not allowed now\r\n", VERDICT_RETRY, ERROR_OVERLOADED},
    {"$22\r\n1 WRONGTYPE not stream\r\n", VERDICT_RETRY, ERROR_ROUTE},
    {"$48\r\n1 @user_script: 1: The user executing the script\r\n", VERDICT_RETRY, ERROR_ROUTE},
    {"$18\r\n1 ERR syntax error\r\n", VERDICT_REJECTED, ERROR_REFUSED},
    {"$13\r\n1 ERR passing\r\n", VERDICT_RETRY, ERROR_REFUSED},
};

START_TEST(refusal_in_the_middle_is_of_one_event_and_stops_the_rest)
{
    struct contract *c = play_run((const char *const[]){refusals[_i].reply, NULL}, 4);
    is(c, 0, VERDICT_ACKED, ERROR_NONE);
    is(c, 1, refusals[_i].verdict, refusals[_i].kind);
    is(c, 2, VERDICT_RETRY, ERROR_REFUSED);
    is(c, 3, VERDICT_RETRY, ERROR_REFUSED);
    ck_assert_int_eq(fake.accepted, 1);
    contract_end(c);
}
END_TEST

static const struct {
    const char *reply;
    enum error_kind kind;
    bool forbidden;
} errors[] = {
    {"-OOM command not allowed\r\n", ERROR_OVERLOADED, false},
    {"-LOADING Redis is loading the dataset in memory\r\n", ERROR_OVERLOADED, false},
    {"-ERR Error running script\r\n", ERROR_REFUSED, false},
    {"-READONLY You can't write\r\n", ERROR_UNREACHABLE, false},
    {"-NOPERM this user has no permissions to run the 'eval' command\r\n", ERROR_ROUTE, true},
    {"-NOPERM this user has no permissions to run the 'eval' command or its subcommand\r\n", ERROR_ROUTE, true},
    {"-NOPERM User relay has no permissions to run the 'eval' command\r\n", ERROR_ROUTE, true},
    {"-NOPERM this user has no permissions to access one of the keys used as arguments\r\n", ERROR_ROUTE, false},
    {"-NOPERM No permissions to access a key\r\n", ERROR_ROUTE, false},
    {"-ERR unknown command 'EVAL'\r\n", ERROR_ROUTE, true},
};

START_TEST(error_of_the_script_is_of_all_its_events_and_none_was_added)
{
    struct contract *c = play_run((const char *const[]){errors[_i].reply, NULL}, 3);
    for (size_t i = 0; i < 3; i++)
        is(c, i, VERDICT_RETRY, errors[_i].kind);
    ck_assert_int_eq(!(c->sink->traits & SINK_TAKES_RUNS), errors[_i].forbidden);
    contract_end(c);
}
END_TEST

static const char *const nonsense[] = {
    ":2\r\n",        ":4\r\n",      ":-1\r\n",    OK,        "$5\r\n3 OOM\r\n", "$6\r\n-1 OOM\r\n",
    "$3\r\nOOM\r\n", "$1\r\n1\r\n", "$0\r\n\r\n", "+OK\r\n", "*0\r\n",
};

START_TEST(answer_that_makes_no_sense_acks_nothing)
{
    struct contract *c = play_run((const char *const[]){nonsense[_i], NULL}, 3);
    for (size_t i = 0; i < 3; i++)
        is(c, i, VERDICT_UNKNOWN, ERROR_PROTOCOL);
    contract_end(c);
}
END_TEST

START_TEST(lost_answer_leaves_all_unknown)
{
    fake.hang_up = true;
    struct contract *c = play_run((const char *const[]){":", NULL}, 3);
    for (size_t i = 0; i < 3; i++)
        is(c, i, VERDICT_UNKNOWN, ERROR_UNREACHABLE);
    contract_end(c);
}
END_TEST

START_TEST(runs_and_single_events_are_told_apart)
{
    fake.replies = (const char *const[]){OK, ":3\r\n", OK, "$7\r\n0 OOM x\r\n", OK, NULL};
    struct contract *c = contract_open(&setup);
    contract_add(c, "s", span_of("{}"));
    contract_add_run(c, "a", 3);
    contract_add(c, NULL, span_of("{}"));
    contract_add_run(c, "b", 2);
    contract_add(c, "t", span_of("{}"));
    play(c);
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 6);
    is(c, 5, VERDICT_RETRY, ERROR_OVERLOADED);
    is(c, 6, VERDICT_RETRY, ERROR_REFUSED);
    contract_end(c);
}
END_TEST

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    Suite *suite = suite_create("redis_runs");
    TCase *tcase = tcase_create("runs");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_test(tcase, run_is_one_command);
    tcase_add_loop_test(tcase, refusal_in_the_middle_is_of_one_event_and_stops_the_rest, 0,
                        (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_loop_test(tcase, error_of_the_script_is_of_all_its_events_and_none_was_added, 0,
                        (int)(sizeof errors / sizeof errors[0]));
    tcase_add_loop_test(tcase, answer_that_makes_no_sense_acks_nothing, 0, (int)(sizeof nonsense / sizeof nonsense[0]));
    tcase_add_test(tcase, lost_answer_leaves_all_unknown);
    tcase_add_test(tcase, runs_and_single_events_are_told_apart);
    return run_suite(suite);
}
