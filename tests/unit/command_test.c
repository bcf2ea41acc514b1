#include "relay/command.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>

static const struct {
    enum error_kind kind;
    int code;
} codes[] = {
    {ERROR_NONE, 0},        {ERROR_USAGE, 64},       {ERROR_CONFIG, 78},     {ERROR_ROUTE, 78},
    {ERROR_PERMISSION, 77}, {ERROR_UNREACHABLE, 69}, {ERROR_OVERLOADED, 75}, {ERROR_TIMEOUT, 75},
    {ERROR_CONFLICT, 75},   {ERROR_RESOURCE, 75},    {ERROR_PROTOCOL, 70},   {ERROR_INTERNAL, 70},
};

START_TEST(exit_code_follows_the_kind_of_error)
{
    ck_assert_int_eq(exit_code_of(codes[_i].kind), codes[_i].code);
}
END_TEST

START_TEST(connection_that_cannot_be_made_is_one_line)
{
    struct error err;
    ck_assert_ptr_null(command_connect("host=/nonexistent dbname=x password=hunter2", "test", &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
    ck_assert_int_eq(strncmp(err.text, "database: ", 10), 0);
    ck_assert_ptr_null(strchr(err.text, '\n'));
    ck_assert_ptr_null(strstr(err.text, "hunter2"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("command");
    TCase *tcase = tcase_create("command");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, exit_code_follows_the_kind_of_error, 0, sizeof codes / sizeof codes[0]);
    tcase_add_test(tcase, connection_that_cannot_be_made_is_one_line);
    return run_suite(suite);
}
