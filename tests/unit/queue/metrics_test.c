#include "relay/queue/metrics.h"

#include "relay/base/backoff.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#include <stdlib.h>

#define VALUES 20000

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

START_TEST(quantiles_are_at_most_a_thirty_second_above_the_exact_ones)
{
    static int64_t values[VALUES];
    struct histogram histogram = {0};
    struct rng rng = {.state = (uint64_t)_i};
    for (size_t i = 0; i < VALUES; i++) {
        values[i] = (int64_t)(rng_next(&rng) >> (24 + rng_next(&rng) % 40)); /* from nothing to 12 days */
        histogram_add(&histogram, values[i]);
    }
    qsort(values, VALUES, sizeof values[0], compare);
    static const double quantiles[] = {0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1};
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
        int64_t exact = values[(size_t)(quantiles[i] * (VALUES - 1))],
                told = histogram_quantile(&histogram, quantiles[i]);
        ck_assert_int_ge(told, exact);
        ck_assert_int_le(told, exact + exact / 32);
    }
    ck_assert_int_eq(histogram.max, values[VALUES - 1]);
}
END_TEST

START_TEST(small_values_are_exact)
{
    for (int64_t value = 0; value < 64; value++) {
        struct histogram histogram = {0};
        histogram_add(&histogram, value);
        histogram_add(&histogram, 1000);
        ck_assert_int_eq(histogram_quantile(&histogram, 0), value);
    }
}
END_TEST

START_TEST(extremes_do_not_overflow)
{
    struct histogram histogram = {0};
    ck_assert_int_eq(histogram_quantile(&histogram, 0.5), 0);
    histogram_add(&histogram, -5); /* a clock that was set back */
    ck_assert_int_eq(histogram_quantile(&histogram, 1), 0);
    histogram_add(&histogram, INT64_MAX);
    ck_assert_int_eq(histogram.max, INT64_MAX);
    ck_assert_int_gt(histogram_quantile(&histogram, 1), INT64_C(1) << 40);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tcase = tcase_create("metrics");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, quantiles_are_at_most_a_thirty_second_above_the_exact_ones, 1, 4);
    tcase_add_test(tcase, small_values_are_exact);
    tcase_add_test(tcase, extremes_do_not_overflow);
    return run_suite(suite);
}
