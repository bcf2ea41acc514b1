/* Which clock counts, on a machine that was suspended for an hour. */
#include "relay/base/clock.h"

#include "relay/base/clock_monotonic.h"
#include "tests/support/run_suite.h"

#include <time.h>

#define BOOTED_S 5000
#define SUSPENDED_S 3600

int __wrap_clock_gettime(clockid_t id, struct timespec *ret);

int __wrap_clock_gettime(clockid_t id, struct timespec *ret)
{
    *ret = (struct timespec){.tv_sec = id == CLOCK_BOOTTIME    ? BOOTED_S
                                       : id == CLOCK_MONOTONIC ? BOOTED_S - SUSPENDED_S
                                                               : 1000000000,
                             .tv_nsec = 999999999};
    return 0;
}

START_TEST(time_that_the_machine_is_suspended_counts)
{
    ck_assert_int_eq(clock_now(), BOOTED_S * SECOND_US + 999999);
    ck_assert_int_eq(clock_wall_us(), 1000000000 * SECOND_US + 999999);
}
END_TEST

START_TEST(wait_of_the_c_library_is_as_long_as_on_our_clock)
{
    struct timespec until = clock_monotonic_at(clock_now() + 2 * SECOND_US + 2);
    ck_assert_int_eq(until.tv_sec, BOOTED_S - SUSPENDED_S + 3);
    ck_assert_int_eq(until.tv_nsec, 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("clock");
    TCase *tcase = tcase_create("clock");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, time_that_the_machine_is_suspended_counts);
    tcase_add_test(tcase, wait_of_the_c_library_is_as_long_as_on_our_clock);
    return run_suite(suite);
}
