/* tests/support/run_suite.h -- what a test program's main() ends with. */
#ifndef TESTS_SUPPORT_RUN_SUITE_H
#define TESTS_SUPPORT_RUN_SUITE_H

#include <check.h>
#include <stdlib.h>

static inline int run_suite_as(Suite *suite, enum fork_status fork_status)
{
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, fork_status);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Owns `suite`. In this process, so that sanitizers and debuggers see it whole; returns the program's exit status. */
static inline int run_suite(Suite *suite)
{
    return run_suite_as(suite, CK_NOFORK);
}

/* The same with a process for each test, where tests end theirs or change what a process has once. */
static inline int run_suite_forked(Suite *suite)
{
    return run_suite_as(suite, CK_FORK);
}

#endif
