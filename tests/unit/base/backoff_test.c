#include "relay/base/backoff.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>

#define DRAWS 2000

struct extremes {
    int64_t least, most;
};

static struct extremes draw(const struct backoff *backoff, unsigned failures)
{
    struct rng rng = {.state = failures};
    struct extremes seen = {INT64_MAX, 0};
    for (int i = 0; i < DRAWS; i++) {
        int64_t us = backoff_delay_us(backoff, failures, &rng);
        seen.least = us < seen.least ? us : seen.least;
        seen.most = us > seen.most ? us : seen.most;
    }
    return seen;
}

START_TEST(delay_is_spread_below_a_ceiling_that_doubles)
{
    const struct backoff backoff = {.base_us = 1000000, .max_us = 60000000};
    int64_t ceiling = 1000000;
    for (unsigned failures = 1; failures <= 6; failures++, ceiling *= 2) {
        struct extremes seen = draw(&backoff, failures);
        ck_assert_int_le(seen.most, ceiling);
        ck_assert_int_gt(seen.most, ceiling / 100 * 95);
        ck_assert_int_lt(seen.least, ceiling / 100 * 5);
        ck_assert_int_ge(seen.least, 1000);
    }
}
END_TEST

START_TEST(ceiling_stops_at_max)
{
    const struct backoff backoff = {.base_us = 1000000, .max_us = 5000000};
    ck_assert_int_le(draw(&backoff, 4).most, 5000000);
    ck_assert_int_gt(draw(&backoff, 4).most, 4500000);
    ck_assert_int_le(draw(&backoff, 4000000000U).most, 5000000);
}
END_TEST

START_TEST(base_above_max_waits_no_longer_than_max)
{
    const struct backoff backoff = {.base_us = 9000000, .max_us = 5000000};
    ck_assert_int_le(draw(&backoff, 1).most, 5000000);
    ck_assert_int_gt(draw(&backoff, 1).most, 4500000);
}
END_TEST

START_TEST(huge_limits_do_not_overflow)
{
    const struct backoff backoff = {.base_us = INT64_MAX / 2, .max_us = INT64_MAX};
    struct extremes seen = draw(&backoff, 100);
    ck_assert_int_ge(seen.least, 1000);
}
END_TEST

START_TEST(tiny_base_waits_a_millisecond)
{
    const struct backoff backoff = {.base_us = 1, .max_us = 1};
    ck_assert_int_eq(draw(&backoff, 1).least, 1000);
    ck_assert_int_eq(draw(&backoff, 1).most, 1000);
}
END_TEST

START_TEST(same_seed_gives_the_same_delays)
{
    const struct backoff backoff = {.base_us = 1000000, .max_us = 60000000};
    struct rng a = {.state = 42}, b = {.state = 42}, c = {.state = 43};
    int same = 0;
    for (unsigned i = 1; i < 20; i++) {
        int64_t delay = backoff_delay_us(&backoff, i, &a);
        ck_assert_int_eq(delay, backoff_delay_us(&backoff, i, &b));
        same += delay == backoff_delay_us(&backoff, i, &c);
    }
    ck_assert_int_lt(same, 3);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("backoff");
    TCase *tcase = tcase_create("backoff");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, delay_is_spread_below_a_ceiling_that_doubles);
    tcase_add_test(tcase, ceiling_stops_at_max);
    tcase_add_test(tcase, base_above_max_waits_no_longer_than_max);
    tcase_add_test(tcase, huge_limits_do_not_overflow);
    tcase_add_test(tcase, tiny_base_waits_a_millisecond);
    tcase_add_test(tcase, same_seed_gives_the_same_delays);
    return run_suite(suite);
}
