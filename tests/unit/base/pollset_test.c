#include "relay/base/pollset.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

static struct pollset *ps;
static int ends[2];

static void setup(void)
{
    ps = pollset_new();
    ck_assert_int_eq(pipe(ends), 0);
}

static void teardown(void)
{
    pollset_free(ps);
    close(ends[0]);
    close(ends[1]);
}

/* A deadline that is already over: poll(2) looks and does not wait. */
static void look(void)
{
    struct error err;
    pollset_deadline(ps, 0);
    ck_assert_msg(pollset_wait(ps, 0, &err), "%s", err.text);
}

START_TEST(ready_descriptors_are_reported)
{
    ck_assert_int_eq(write(ends[1], "x", 1), 1);
    pollset_add(ps, ends[0], POLLIN);
    pollset_add(ps, ends[1], POLLOUT);
    look();
    ck_assert_int_eq(pollset_revents(ps, ends[0]), POLLIN);
    ck_assert_int_eq(pollset_revents(ps, ends[1]), POLLOUT);
}
END_TEST

START_TEST(idle_and_unknown_descriptors_have_no_events)
{
    pollset_add(ps, ends[0], POLLIN);
    look();
    ck_assert_int_eq(pollset_revents(ps, ends[0]), 0);
    ck_assert_int_eq(pollset_revents(ps, ends[1]), 0);
    ck_assert_int_eq(pollset_revents(ps, 100000), 0);
    ck_assert_int_eq(pollset_revents(ps, -1), 0);
}
END_TEST

START_TEST(descriptor_added_twice_waits_for_both)
{
    pollset_add(ps, ends[1], POLLIN);
    pollset_add(ps, ends[1], POLLOUT);
    look();
    ck_assert_int_eq(pollset_revents(ps, ends[1]) & POLLOUT, POLLOUT);
}
END_TEST

START_TEST(negative_descriptor_is_ignored)
{
    pollset_add(ps, -1, POLLIN);
    look();
}
END_TEST

START_TEST(cleared_set_forgets_descriptors_and_deadline)
{
    pollset_add(ps, ends[1], POLLOUT);
    look();
    pollset_clear(ps);
    ck_assert_int_eq(pollset_revents(ps, ends[1]), 0);
    ck_assert_int_eq(pollset_next_deadline(ps), INSTANT_NEVER);
    pollset_add(ps, ends[0], POLLIN);
    look();
    ck_assert_int_eq(pollset_revents(ps, ends[1]), 0);
}
END_TEST

START_TEST(nearest_deadline_wins)
{
    pollset_deadline(ps, 300);
    pollset_deadline(ps, 100);
    pollset_deadline(ps, 200);
    ck_assert_int_eq(pollset_next_deadline(ps), 100);
}
END_TEST

START_TEST(many_descriptors_keep_their_own_events)
{
    enum { COUNT = 300 };
    int more[COUNT][2];
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(pipe(more[i]), 0);
        if (i % 3 == 0)
            ck_assert_int_eq(write(more[i][1], "x", 1), 1);
        pollset_add(ps, more[i][0], POLLIN);
    }
    look();
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(pollset_revents(ps, more[i][0]), i % 3 == 0 ? POLLIN : 0);
        close(more[i][0]);
        close(more[i][1]);
    }
}
END_TEST

START_TEST(closed_peer_is_reported_without_asking)
{
    close(ends[1]);
    pollset_add(ps, ends[0], 0);
    look();
    ck_assert_int_eq(pollset_revents(ps, ends[0]), POLLHUP);
    ends[1] = -1;
}
END_TEST

START_TEST(wait_is_measured)
{
    struct error err;
    pollset_add(ps, ends[0], POLLIN);
    pollset_deadline(ps, 5 * MS_US);
    ck_assert(pollset_wait(ps, 0, &err));
    ck_assert_int_ge(pollset_waited_us(ps), 5 * MS_US);
    ck_assert_int_eq(write(ends[1], "x", 1), 1);
    pollset_clear(ps);
    pollset_add(ps, ends[0], POLLIN);
    pollset_deadline(ps, 3600 * SECOND_US);
    ck_assert(pollset_wait(ps, 0, &err));
    ck_assert_int_lt(pollset_waited_us(ps), 1800 * SECOND_US);
}
END_TEST

static void do_nothing(int number)
{
    (void)number;
}

START_TEST(signal_ends_the_wait_as_a_success)
{
    struct error err;
    const struct sigaction action = {.sa_handler = do_nothing};
    /* Again and again, in case the first one comes before the wait. */
    const struct itimerval timer = {.it_interval = {.tv_usec = 5000}, .it_value = {.tv_usec = 5000}};
    const struct itimerval stop = {.it_value = {0}};
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &timer, NULL);
    pollset_add(ps, ends[0], POLLIN);
    bool good = pollset_wait(ps, 0, &err);
    setitimer(ITIMER_REAL, &stop, NULL);
    ck_assert(good);
    ck_assert_int_eq(pollset_revents(ps, ends[0]), 0);
}
END_TEST

#ifndef PGCOURIER_VALGRIND /* which keeps RLIMIT_NOFILE to itself */
START_TEST(wait_that_cannot_be_is_an_error)
{
    struct error err;
    struct rlimit few, before;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 1;
    pollset_add(ps, ends[0], POLLIN);
    pollset_add(ps, ends[1], POLLOUT);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    bool good = pollset_wait(ps, 0, &err);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert(!good);
    ck_assert_int_eq(err.kind, ERROR_RESOURCE);
    ck_assert_int_eq(pollset_revents(ps, ends[1]), 0);
}
END_TEST
#endif

START_TEST(null_may_be_freed)
{
    pollset_free(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pollset");
    TCase *tcase = tcase_create("pollset");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, ready_descriptors_are_reported);
    tcase_add_test(tcase, idle_and_unknown_descriptors_have_no_events);
    tcase_add_test(tcase, descriptor_added_twice_waits_for_both);
    tcase_add_test(tcase, negative_descriptor_is_ignored);
    tcase_add_test(tcase, cleared_set_forgets_descriptors_and_deadline);
    tcase_add_test(tcase, nearest_deadline_wins);
    tcase_add_test(tcase, many_descriptors_keep_their_own_events);
    tcase_add_test(tcase, closed_peer_is_reported_without_asking);
    tcase_add_test(tcase, wait_is_measured);
    tcase_add_test(tcase, signal_ends_the_wait_as_a_success);
#ifndef PGCOURIER_VALGRIND /* which keeps RLIMIT_NOFILE to itself */
    tcase_add_test(tcase, wait_that_cannot_be_is_an_error);
#endif
    tcase_add_test(tcase, null_may_be_freed);
    return run_suite(suite);
}
