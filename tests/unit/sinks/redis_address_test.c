#include "sinks/redis/redis_address.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *url;
    bool tls;
    const char *path, *host;
    int port;
    const char *user, *password;
    int64_t database;
    const char *text;
} good[] = {
    {"redis://h", false, NULL, "h", 6379, NULL, NULL, 0, "redis at h:6379"},
    {"redis://h/", false, NULL, "h", 6379, NULL, NULL, 0, "redis at h:6379"},
    {"redis://127.0.0.1:6380/3", false, NULL, "127.0.0.1", 6380, NULL, NULL, 3, "redis at 127.0.0.1:6380"},
    {"rediss://h:1", true, NULL, "h", 1, NULL, NULL, 0, "redis at h:1"},
    {"redis://u:p@h", false, NULL, "h", 6379, "u", "p", 0, "redis at h:6379"},
    {"redis://:p@h", false, NULL, "h", 6379, NULL, "p", 0, "redis at h:6379"},
    {"redis://u@h", false, NULL, "h", 6379, "u", NULL, 0, "redis at h:6379"},
    {"redis://u:p%40%3a%2F:x@h:7/1", false, NULL, "h", 7, "u", "p@:/:x", 1, "redis at h:7"},
    {"redis://u:a@b@h", false, NULL, "h", 6379, "u", "a@b", 0, "redis at h:6379"},
    {"redis://[::1]:6380/2", false, NULL, "::1", 6380, NULL, NULL, 2, "redis at [::1]:6380"},
    {"redis://[::1]", false, NULL, "::1", 6379, NULL, NULL, 0, "redis at [::1]:6379"},
    {"unix:///run/redis.sock", false, "/run/redis.sock", NULL, 0, NULL, NULL, 0, "redis at /run/redis.sock"},
    {"unix:///run/a%20b?db=4", false, "/run/a b", NULL, 0, NULL, NULL, 4, "redis at /run/a b"},
};

static void same(const char *got, const char *wanted)
{
    ck_assert_int_eq(got == NULL, wanted == NULL);
    if (got && wanted)
        ck_assert_str_eq(got, wanted);
}

START_TEST(address_is_taken_apart)
{
    struct redis_address address;
    struct error err;
    ck_assert_msg(redis_address_parse(good[_i].url, &address, &err), "%s: %s", good[_i].url, err.text);
    ck_assert_int_eq(address.tls, good[_i].tls);
    same(address.path, good[_i].path);
    same(address.host, good[_i].host);
    ck_assert_int_eq(address.port, good[_i].port);
    same(address.user, good[_i].user);
    same(address.password, good[_i].password);
    ck_assert_int_eq(address.database, good[_i].database);
    ck_assert_str_eq(address.text, good[_i].text);
    redis_address_done(&address);
}
END_TEST

static const char *const bad[] = {
    "",
    "h",
    "http://h",
    "redis:h",
    "redis://",
    "redis:///1",
    "redis://:6379",
    "redis://h:",
    "redis://h:65536",
    "redis://h:6379x",
    "redis://h:-1",
    "redis://h/x",
    "redis://h/1/2",
    "redis://h/99999999999",
    "redis://h?x=1",
    "redis://@h",
    "redis://s3cret%@h",
    "redis://u:s3cret%4@h",
    "redis://u:s3cret%zz@h",
    "redis://u:s3cret%00@h",
    "redis://u:s3cret%2\x11@h",
    "redis://[::1",
    "redis://[::1]6379",
    "redis://[::1]:",
    "redis://[]",
    "unix://run/x",
    "unix:///",
    "unix:///x?db=",
    "unix:///x?db=y",
    "unix:///x?password=s3cret",
};

START_TEST(anything_else_is_refused_without_showing_the_password)
{
    struct redis_address address;
    struct error err;
    ck_assert_msg(!redis_address_parse(bad[_i], &address, &err), "%s", bad[_i]);
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    ck_assert_ptr_null(strstr(err.text, "s3cret"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("redis_address");
    TCase *tcase = tcase_create("redis_address");
    tcase_add_loop_test(tcase, address_is_taken_apart, 0, (int)(sizeof good / sizeof good[0]));
    tcase_add_loop_test(tcase, anything_else_is_refused_without_showing_the_password, 0,
                        (int)(sizeof bad / sizeof bad[0]));
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
