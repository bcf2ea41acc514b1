/* When a request's time is up, by a clock that does not count what the loop has missed. */
#include "sinks/http/http_time.h"

#include "tests/support/run_suite.h"

#include <check.h>

#define TIMEOUT_US (15 * SECOND_US)

static struct http_time timer;
static instant_us now;

static void set_up(void)
{
    now = 1000 * SECOND_US;
    http_time_init(&timer);
    http_time_turn(&timer, now);
}

static void turn_after(int64_t us)
{
    now += us;
    http_time_turn(&timer, now);
}

/* As the loop does, which comes back when it is asked to. */
static void wait_for(int64_t us)
{
    instant_us until = now + us;
    while (now < until)
        turn_after(instant_min(http_time_wait(&timer), until) - now);
}

START_TEST(time_is_up_after_the_timeout_and_not_before)
{
    ck_assert_int_eq(http_time_wait(&timer), INSTANT_NEVER);
    int64_t up_us = http_time_begin(&timer, TIMEOUT_US, now);
    wait_for(TIMEOUT_US - 1);
    ck_assert(!http_time_is_due(&timer));
    wait_for(1);
    ck_assert(http_time_is_due(&timer));
    ck_assert(http_time_is_up(&timer, up_us));
    ck_assert_int_eq(http_time_wait(&timer), INSTANT_NEVER);
}
END_TEST

START_TEST(standstill_takes_no_more_than_a_turn_from_a_request)
{
    int64_t up_us = http_time_begin(&timer, TIMEOUT_US, now);
    turn_after(3600 * SECOND_US);
    ck_assert(!http_time_is_due(&timer));
    wait_for(TIMEOUT_US - HTTP_TURN_MAX_US);
    ck_assert(http_time_is_due(&timer));
    ck_assert(http_time_is_up(&timer, up_us));
}
END_TEST

/* As it happens: what a claim has brought is sent before the loop's turn of the sink. */
START_TEST(what_has_passed_before_a_request_is_not_taken_from_it)
{
    now += 800 * MS_US;
    int64_t up_us = http_time_begin(&timer, 500 * MS_US, now);
    turn_after(0);
    ck_assert(!http_time_is_due(&timer));
    wait_for(500 * MS_US - 1);
    ck_assert(!http_time_is_due(&timer));
    wait_for(1);
    ck_assert(http_time_is_due(&timer) && http_time_is_up(&timer, up_us));
}
END_TEST

START_TEST(loop_that_is_late_at_every_turn_ends_a_request_all_the_same)
{
    int64_t up_us = http_time_begin(&timer, TIMEOUT_US, now);
    for (int i = 0; i < 14; i++)
        turn_after(5 * SECOND_US);
    ck_assert(!http_time_is_due(&timer));
    turn_after(5 * SECOND_US);
    ck_assert(http_time_is_due(&timer) && http_time_is_up(&timer, up_us));
}
END_TEST

START_TEST(each_request_has_its_own_time)
{
    int64_t first = http_time_begin(&timer, TIMEOUT_US, now);
    wait_for(SECOND_US);
    int64_t second = http_time_begin(&timer, TIMEOUT_US, now);
    wait_for(TIMEOUT_US - SECOND_US);
    ck_assert(http_time_is_due(&timer));
    ck_assert(http_time_is_up(&timer, first));
    ck_assert(!http_time_is_up(&timer, second));
    ck_assert(!http_time_is_due(&timer));
    ck_assert_int_eq(http_time_wait(&timer), now + SECOND_US);
    wait_for(SECOND_US);
    ck_assert(http_time_is_due(&timer));
    ck_assert(http_time_is_up(&timer, second));
}
END_TEST

/* Who has been answered is not asked for, and the loop has waked up for nothing once. */
START_TEST(request_that_is_over_is_forgotten)
{
    (void)http_time_begin(&timer, TIMEOUT_US, now);
    wait_for(TIMEOUT_US);
    ck_assert(http_time_is_due(&timer));
    ck_assert(!http_time_is_due(&timer));
    ck_assert_int_eq(http_time_wait(&timer), INSTANT_NEVER);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_time");
    TCase *tcase = tcase_create("http_time");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, time_is_up_after_the_timeout_and_not_before);
    tcase_add_test(tcase, standstill_takes_no_more_than_a_turn_from_a_request);
    tcase_add_test(tcase, what_has_passed_before_a_request_is_not_taken_from_it);
    tcase_add_test(tcase, loop_that_is_late_at_every_turn_ends_a_request_all_the_same);
    tcase_add_test(tcase, each_request_has_its_own_time);
    tcase_add_test(tcase, request_that_is_over_is_forgotten);
    return run_suite(suite);
}
