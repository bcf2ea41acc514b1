/* Names are looked up aside: what is found, what is not, and what hangs. */
#include "relay/base/lookup.h"

#include "tests/support/played_resolver.h"
#include "tests/support/run_suite.h"

#include <signal.h>

static struct error err;

/* Returns when the loop has been told. */
static void wait_for(struct lookup *lookup)
{
    struct pollset *ps = pollset_new();
    while (!lookup_is_done(lookup)) {
        pollset_clear(ps);
        lookup_prepare(lookup, ps);
        ck_assert(pollset_wait(ps, 0, &err));
    }
    pollset_free(ps);
}

static struct lookup *found(const char *name)
{
    struct lookup *lookup = lookup_start(name, &err);
    ck_assert_ptr_nonnull(lookup);
    ck_assert_str_eq(lookup_name(lookup), name);
    wait_for(lookup);
    return lookup;
}

START_TEST(addresses_come_in_the_order_of_the_system)
{
    struct lookup *lookup = found("two.test");
    ck_assert_uint_eq(lookup_count(lookup, &err), 2);
    ck_assert_str_eq(lookup_address(lookup, 0), "::1");
    ck_assert_str_eq(lookup_address(lookup, 1), "127.0.0.1");
    lookup_free(lookup);
}
END_TEST

START_TEST(name_with_too_many_addresses_gives_the_first)
{
    struct lookup *lookup = found("many.test");
    ck_assert_uint_eq(lookup_count(lookup, &err), LOOKUP_ADDRESSES_MAX);
    ck_assert_str_eq(lookup_address(lookup, LOOKUP_ADDRESSES_MAX - 1), "127.0.0.32");
    lookup_free(lookup);
}
END_TEST

static const struct {
    const char *name, *why;
} unknown[] = {
    {"none.test", "Name or service not known"}, {"broken.test", "Too many open files"}, {"odd.test", "it has none"}};

START_TEST(name_that_is_not_known_is_told_with_its_reason)
{
    struct lookup *lookup = found(unknown[_i].name);
    ck_assert_uint_eq(lookup_count(lookup, &err), 0);
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(err.text, unknown[_i].name));
    ck_assert_ptr_nonnull(strstr(err.text, unknown[_i].why));
    ck_assert_uint_eq(lookup_count(lookup, NULL), 0);
    lookup_free(lookup);
}
END_TEST

START_TEST(addresses_in_figures_are_looked_up_by_nobody)
{
    static const char *const figures[] = {"127.0.0.1", "::1", "fe80::1%1", "127.1"};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        ck_assert(!lookup_is_needed(figures[i]));
    ck_assert(lookup_is_needed("localhost"));
    ck_assert(lookup_is_needed("127.0.0.1.test"));
    ck_assert_int_eq(resolver_calls(), 0);
}
END_TEST

START_TEST(name_server_that_hangs_holds_nobody_up)
{
    struct lookup *given_up = lookup_start("hang.test", &err), *waited_for = lookup_start("hang.test", &err);
    struct lookup *other = found("two.test");
    ck_assert(!lookup_is_done(given_up));
    lookup_free(given_up);
    lookup_free(other);
    resolver_release();
    wait_for(waited_for);
    ck_assert_uint_eq(lookup_count(waited_for, &err), 1);
    lookup_free(waited_for);
    resolver_wait_for_calls_to_end(3, 0);
}
END_TEST

/* A signal for the process goes to the main thread, which may have it blocked for its signalfd. */
START_TEST(thread_takes_no_signal)
{
    sigset_t mine;
    struct lookup *lookup = found("signals.test");
    for (int number = 1; number < 32; number++)
        ck_assert_msg(number == SIGKILL || number == SIGSTOP || sigismember(&resolver_signals, number), "%d", number);
    sigprocmask(SIG_SETMASK, NULL, &mine);
    ck_assert(!sigismember(&mine, SIGTERM));
    lookup_free(lookup);
}
END_TEST

START_TEST(lookup_that_cannot_begin_is_an_error)
{
    resolver_refuse_threads = true;
    ck_assert_ptr_null(lookup_start("two.test", &err));
    ck_assert_int_eq(err.kind, ERROR_RESOURCE);
    ck_assert_ptr_nonnull(strstr(err.text, "two.test"));
    resolver_refuse_threads = false;
    lookup_free(NULL);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lookup");
    TCase *tcase = tcase_create("lookup");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, resolver_begin, NULL);
    tcase_add_test(tcase, addresses_come_in_the_order_of_the_system);
    tcase_add_test(tcase, name_with_too_many_addresses_gives_the_first);
    tcase_add_loop_test(tcase, name_that_is_not_known_is_told_with_its_reason, 0, 3);
    tcase_add_test(tcase, addresses_in_figures_are_looked_up_by_nobody);
    tcase_add_test(tcase, name_server_that_hangs_holds_nobody_up);
    tcase_add_test(tcase, thread_takes_no_signal);
    tcase_add_test(tcase, lookup_that_cannot_begin_is_an_error);
    return run_suite(suite);
}
