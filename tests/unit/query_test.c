/* A database that does not answer: libpq and poll(2) are played here. */
#include "relay/query.h"

#include "tests/support/run_suite.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

static int poll_result, poll_errno;

int __wrap_PQsendQueryParams(void);
int __wrap_PQsendQuery(void);
int __wrap_PQisBusy(void);
int __wrap_poll(void);

int __wrap_PQsendQueryParams(void)
{
    return 1;
}

int __wrap_PQsendQuery(void)
{
    return 1;
}

int __wrap_PQisBusy(void)
{
    return 1;
}

int __wrap_poll(void)
{
    errno = poll_errno;
    return poll_result;
}

static void assert_fails(enum error_kind kind, const char *text)
{
    struct error err;
    ck_assert_ptr_null(query_in_time(NULL, "asking", "select 1", 0, NULL, &err));
    ck_assert_int_eq(err.kind, kind);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ck_assert(!query_script_in_time(NULL, "asking", "select 1", &err));
    ck_assert_int_eq(err.kind, kind);
}

START_TEST(answer_that_does_not_come_in_time_is_a_timeout)
{
    poll_result = 0;
    assert_fails(ERROR_TIMEOUT, "asking: the database gave no answer within ");
}
END_TEST

START_TEST(wait_that_fails_is_an_error)
{
    poll_result = -1;
    poll_errno = EINVAL;
    assert_fails(ERROR_RESOURCE, "asking: poll: Invalid argument");
}
END_TEST

START_TEST(connection_that_breaks_is_unreachable)
{
    poll_result = 1; /* and there is nothing to read from */
    assert_fails(ERROR_UNREACHABLE, "asking: ");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("query");
    TCase *tcase = tcase_create("query");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, answer_that_does_not_come_in_time_is_a_timeout);
    tcase_add_test(tcase, wait_that_fails_is_an_error);
    tcase_add_test(tcase, connection_that_breaks_is_unreachable);
    return run_suite(suite);
}
