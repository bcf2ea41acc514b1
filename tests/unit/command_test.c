#include "relay/command.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>

static bool without_memory; /* as libpq would have it */

PGconn *__real_PQconnectStartParams(const char *const *names, const char *const *values, int expand);
PGconn *__wrap_PQconnectStartParams(const char *const *names, const char *const *values, int expand);

PGconn *__wrap_PQconnectStartParams(const char *const *names, const char *const *values, int expand)
{
    return without_memory ? NULL : __real_PQconnectStartParams(names, values, expand);
}

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

START_TEST(library_without_memory_is_an_error_that_passes)
{
    struct error err;
    without_memory = true;
    PGconn *conn = command_connect("host=/nonexistent", "test", &err);
    without_memory = false;
    ck_assert_ptr_null(conn);
    ck_assert_int_eq(err.kind, ERROR_RESOURCE);
    ck_assert_str_eq(err.text, "database: out of memory");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("command");
    TCase *tcase = tcase_create("command");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, exit_code_follows_the_kind_of_error, 0, sizeof codes / sizeof codes[0]);
    tcase_add_test(tcase, connection_that_cannot_be_made_is_one_line);
    tcase_add_test(tcase, library_without_memory_is_an_error_that_passes);
    return run_suite(suite);
}
