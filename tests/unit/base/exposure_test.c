#include "relay/base/exposure.h"
#include "tests/support/run_suite.h"

#include <stdio.h>

static const char *const local[] = {
    "localhost",
    "LocalHost",
    "localhost.",
    "db.localhost",
    "localhost.localdomain",
    "localhost6",
    "ip6-localhost",
    "ip6-loopback",
    "127.0.0.1",
    "127.255.0.3",
    "127.1",
    "0.0.0.0",
    "::1",
    "[::1]",
    "::",
    "::ffff:127.0.0.1",
    "[::ffff:127.9.9.9]",
    "0:0:0:0:0:0:0:1",
};

static const char *const elsewhere[] = {
    "db.example", "localhost.example", "mylocalhost", ".localhost",   "localhos", "127.0.0.1.example",
    "128.0.0.1",  "10.0.0.1",          "192.168.1.1", "1.0.0.127",    "::2",      "[2001:db8::1]",
    "fe80::1",    "::ffff:10.0.0.1",   "[::1",        "127.0.0.1:80", "h",
};

START_TEST(host_on_this_machine_is_told_by_what_it_says)
{
    ck_assert_msg(exposure_is_local(local[_i]), "%s", local[_i]);
}
END_TEST

START_TEST(every_other_host_is_somewhere_else)
{
    ck_assert_msg(!exposure_is_local(elsewhere[_i]), "%s", elsewhere[_i]);
}
END_TEST

static const struct {
    const char *hosts[4], *listed;
} lists[] = {
    {{"a"}, "a"},
    {{"a", "b", "c"}, "a, b, c"},
    {{"127.0.0.1", "", "localhost"}, ""},
    {{"127.0.0.1", "a", "::1"}, "a"},
    {{"a", "a", "b", "a"}, "a, b"},
    {{"aa", "a", "a.aa"}, "aa, a, a.aa"},
    {{"s3cret@a", "x@s3cret@b", "me@localhost"}, "a, b"},
};

START_TEST(hosts_elsewhere_are_listed_once_and_without_a_user)
{
    struct exposure exposure = {0};
    for (size_t i = 0; i < 4 && lists[_i].hosts[i]; i++)
        exposure_add_host(&exposure, span_of(lists[_i].hosts[i]));
    exposure_add_host(&exposure, span_of(NULL));
    ck_assert_str_eq(exposure.hosts, lists[_i].listed);
}
END_TEST

START_TEST(list_that_is_full_says_that_there_are_more)
{
    struct exposure exposure = {0};
    char name[32];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "host-%d.example", i);
        exposure_add_host(&exposure, span_of(name));
    }
    size_t size = strlen(exposure.hosts);
    ck_assert_uint_lt(size, sizeof exposure.hosts);
    ck_assert_uint_gt(size, sizeof exposure.hosts - 30);
    ck_assert_str_eq(exposure.hosts + size - strlen("example, ..."), "example, ...");
    ck_assert_ptr_eq(strstr(exposure.hosts, "..."), exposure.hosts + size - 3);
}
END_TEST

START_TEST(endless_name_is_cut)
{
    struct exposure exposure = {0};
    char name[1000];
    memset(name, 'x', sizeof name);
    exposure_add_host(&exposure, (struct span){name, sizeof name});
    exposure_add_host(&exposure, span_of("a"));
    ck_assert_uint_eq(strlen(exposure.hosts), sizeof exposure.hosts - 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("exposure");
    TCase *tcase = tcase_create("exposure");
    tcase_add_loop_test(tcase, host_on_this_machine_is_told_by_what_it_says, 0, (int)(sizeof local / sizeof local[0]));
    tcase_add_loop_test(tcase, every_other_host_is_somewhere_else, 0, (int)(sizeof elsewhere / sizeof elsewhere[0]));
    tcase_add_loop_test(tcase, hosts_elsewhere_are_listed_once_and_without_a_user, 0,
                        (int)(sizeof lists / sizeof lists[0]));
    tcase_add_test(tcase, list_that_is_full_says_that_there_are_more);
    tcase_add_test(tcase, endless_name_is_cut);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
