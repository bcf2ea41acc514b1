/* What is asked of a server that is not there. What one says that is: tests/integration, by command. */
#include "relay/commands/argument.h"

#include "tests/support/run_suite.h"

#include <string.h>

static PGconn *gone;
static struct error err;

static void set_up(void)
{
    gone = PQconnectdb("host=/nowhere");
    err = (struct error){0};
}

static void tear_down(void)
{
    PQfinish(gone);
}

START_TEST(what_is_not_given_is_not_asked_about)
{
    const struct argument arguments[] = {
        {"--since", ARGUMENT_TIME, NULL}, {.name = NULL}, {"--until", ARGUMENT_TIME, "behind the end"}};
    ck_assert(argument_check(gone, "replay", arguments, &err));
}
END_TEST

START_TEST(a_server_that_does_not_answer_has_not_refused_the_value)
{
    const struct argument arguments[] = {{"--since", ARGUMENT_TIME, "2026-01-31"}, {.name = NULL}};
    ck_assert(!argument_check(gone, "replay", arguments, &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
    ck_assert_msg(strncmp(err.text, "replay: PostgreSQL: ", 20) == 0 && !strstr(err.text, "--since"), "%s", err.text);
}
END_TEST

START_TEST(an_id_is_a_whole_number_of_64_bits)
{
    const char *const ids[] = {"0", "7", "-7", "9223372036854775807", "-9223372036854775808"};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        ck_assert_msg(argument_is_id(ids[i], strlen(ids[i])), "%s", ids[i]);
    const char *const others[] = {
        "", "-", "--7", "+7", " 7", "7 ", "x", "7x", "9223372036854775808", "-9223372036854775809"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        ck_assert_msg(!argument_is_id(others[i], strlen(others[i])), "%s", others[i]);
}
END_TEST

START_TEST(of_a_list_one_id_is_looked_at)
{
    ck_assert(argument_is_id("7,x", 1));
    ck_assert(!argument_is_id("7,x", 2));
    ck_assert(!argument_is_id(",7", 0));
    ck_assert(!argument_is_id("-,7", 1));
}
END_TEST

int main(void)
{
    TCase *tcase = tcase_create("argument");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, what_is_not_given_is_not_asked_about);
    tcase_add_test(tcase, an_id_is_a_whole_number_of_64_bits);
    tcase_add_test(tcase, of_a_list_one_id_is_looked_at);
    tcase_add_test(tcase, a_server_that_does_not_answer_has_not_refused_the_value);
    Suite *suite = suite_create("argument");
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
