#include "sinks/http/http_window.h"
#include "tests/support/run_suite.h"

#include <check.h>

#define ALLOWED 256
#define LEAST ((size_t)32)

static struct http_window window;
static instant_us now;

static void set_up(void)
{
    now = SECOND_US;
    http_window_init(&window, ALLOWED);
    http_window_turn(&window, 0, 0, now);
}

/* One turn with a full window that was busy and then waited. */
static void full_turn(size_t answers, int64_t busy_us, int64_t waited_us)
{
    http_window_wait(&window, window.limit);
    now += busy_us + waited_us;
    http_window_turn(&window, answers, waited_us, now);
}

/* The loop finds half of what is in flight answered, each time. */
static void never_wait(int turns)
{
    for (int i = 0; i < turns; i++)
        full_turn(window.limit / 2, (int64_t)window.limit * 10, 0);
}

/* At its least, and with nothing counted yet. */
static void narrow(void)
{
    do
        never_wait(1);
    while (window.limit > LEAST || window.answers > 0);
}

START_TEST(it_begins_as_wide_as_allowed)
{
    ck_assert_uint_eq(window.limit, ALLOWED);
}
END_TEST

START_TEST(loop_that_never_waits_for_answers_gets_fewer_at_once)
{
    size_t before = window.limit;
    for (int i = 0; i < 100; i++) {
        never_wait(1);
        ck_assert_uint_le(window.limit, before);
        ck_assert_uint_ge(window.limit, before - before / 4);
        before = window.limit;
    }
    ck_assert_uint_eq(window.limit, LEAST);
}
END_TEST

START_TEST(one_round_of_answers_that_lay_waiting_proves_nothing)
{
    full_turn(ALLOWED / 2, 5 * MS_US, 0);
    full_turn(ALLOWED / 2, 5 * MS_US, 0);
    ck_assert_uint_eq(window.limit, ALLOWED);
}
END_TEST

START_TEST(slow_receiver_that_answers_all_at_once_keeps_it_wide)
{
    for (int i = 0; i < 100; i++) {
        full_turn(8, 0, 40 * MS_US);
        for (size_t answers = 8; answers < ALLOWED; answers += 62)
            full_turn(62, 2 * MS_US, 0);
        ck_assert_uint_eq(window.limit, ALLOWED);
    }
}
END_TEST

START_TEST(it_widens_within_milliseconds_even_without_an_answer)
{
    narrow();
    for (size_t limit = LEAST; limit < ALLOWED; limit *= 2) {
        ck_assert_uint_eq(window.limit, limit);
        ck_assert_int_eq(http_window_wait(&window, limit), now + MS_US);
        full_turn(0, 0, MS_US);
    }
    ck_assert_uint_eq(window.limit, ALLOWED);
    ck_assert_int_eq(http_window_wait(&window, ALLOWED), INSTANT_NEVER);
}
END_TEST

START_TEST(it_widens_when_a_quarter_of_the_time_is_spent_waiting)
{
    narrow();
    for (int i = 0; i < 4; i++) {
        full_turn(8, 0, 200); /* all of it, but not for long enough to tell */
        ck_assert_uint_eq(window.limit, LEAST);
    }
    full_turn(8, 4 * MS_US, 400); /* 1.2 ms of 5.2 */
    ck_assert_uint_eq(window.limit, LEAST);
    full_turn(8, 0, 200);
    ck_assert_uint_eq(window.limit, 2 * LEAST);
}
END_TEST

START_TEST(a_little_waiting_leaves_it_as_it_is)
{
    never_wait(4);
    size_t limit = window.limit;
    ck_assert_uint_gt(limit, LEAST);
    for (int i = 0; i < 100; i++)
        full_turn(limit / 2, 9 * MS_US, MS_US);
    ck_assert_uint_eq(window.limit, limit);
}
END_TEST

START_TEST(window_that_is_not_full_says_nothing)
{
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(http_window_wait(&window, ALLOWED - 1), INSTANT_NEVER);
        now += 5 * MS_US;
        http_window_turn(&window, ALLOWED / 2, 0, now);
    }
    ck_assert_uint_eq(window.limit, ALLOWED);
    narrow();
    for (int i = 0; i < 1000; i++) {
        ck_assert_int_eq(http_window_wait(&window, LEAST - 1), INSTANT_NEVER);
        now += 5 * MS_US;
        http_window_turn(&window, 1, 5 * MS_US, now);
    }
    ck_assert_uint_eq(window.limit, LEAST);
}
END_TEST

START_TEST(few_connections_are_all_used)
{
    http_window_init(&window, 3);
    never_wait(100);
    ck_assert_uint_eq(window.limit, 3);
    full_turn(0, 0, SECOND_US);
    ck_assert_uint_eq(window.limit, 3);
}
END_TEST

START_TEST(it_never_gets_wider_than_allowed)
{
    http_window_init(&window, 100);
    narrow();
    ck_assert_uint_eq(window.limit, LEAST);
    for (int i = 0; i < 10; i++)
        full_turn(0, 0, 10 * MS_US);
    ck_assert_uint_eq(window.limit, 100);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_window");
    TCase *tcase = tcase_create("http_window");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, it_begins_as_wide_as_allowed);
    tcase_add_test(tcase, loop_that_never_waits_for_answers_gets_fewer_at_once);
    tcase_add_test(tcase, one_round_of_answers_that_lay_waiting_proves_nothing);
    tcase_add_test(tcase, slow_receiver_that_answers_all_at_once_keeps_it_wide);
    tcase_add_test(tcase, it_widens_within_milliseconds_even_without_an_answer);
    tcase_add_test(tcase, it_widens_when_a_quarter_of_the_time_is_spent_waiting);
    tcase_add_test(tcase, a_little_waiting_leaves_it_as_it_is);
    tcase_add_test(tcase, window_that_is_not_full_says_nothing);
    tcase_add_test(tcase, few_connections_are_all_used);
    tcase_add_test(tcase, it_never_gets_wider_than_allowed);
    return run_suite(suite);
}
