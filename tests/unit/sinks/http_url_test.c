#include "sinks/http/http_url.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <stdlib.h>

static struct arena *arena;
static struct http_url url;

static void start(void)
{
    arena = arena_new();
    struct error err;
    ck_assert(http_url_init(&url, "https://me:p%40ss@hooks.example:8443/in/?t=s3cret", &err));
}

static void stop(void)
{
    http_url_done(&url);
    arena_free(arena);
}

static const char *joined(struct span destination)
{
    struct error err;
    const char *text = http_url_join(&url, destination, arena, &err);
    if (!text)
        ck_assert_int_eq(err.kind, ERROR_REFUSED);
    return text;
}

START_TEST(credentials_and_query_are_kept_apart)
{
    ck_assert_str_eq(url.base, "https://hooks.example:8443/in/");
    ck_assert_str_eq(url.base_with_query, "https://hooks.example:8443/in/?t=s3cret");
    ck_assert_str_eq(url.user, "me");
    ck_assert_str_eq(url.password, "p@ss");
    ck_assert(url.https);
}
END_TEST

START_TEST(destination_is_appended_to_the_path)
{
    ck_assert_str_eq(joined(span_of("")), "https://hooks.example:8443/in/?t=s3cret");
    ck_assert_str_eq(joined((struct span){NULL, 0}), "https://hooks.example:8443/in/?t=s3cret");
    ck_assert_str_eq(joined(span_of("orders/7")), "https://hooks.example:8443/in/orders/7?t=s3cret");
    ck_assert_str_eq(joined(span_of("/orders/7")), "https://hooks.example:8443/in/orders/7?t=s3cret");
    ck_assert_str_eq(joined(span_of("a...b/..c")), "https://hooks.example:8443/in/a...b/..c?t=s3cret");
}
END_TEST

START_TEST(whatever_the_destination_holds_stays_in_the_path)
{
    ck_assert_str_eq(joined(span_of("//evil.example/x")), "https://hooks.example:8443/in//evil.example/x?t=s3cret");
    ck_assert_str_eq(joined(span_of("@evil.example")), "https://hooks.example:8443/in/@evil.example?t=s3cret");
    ck_assert_str_eq(joined(span_of("a?b#c d%2e\\e")), "https://hooks.example:8443/in/a%3Fb%23c%20d%252e%5Ce?t=s3cret");
    ck_assert_str_eq(joined(span_of("\xc3\xbc")), "https://hooks.example:8443/in/%C3%BC?t=s3cret");
    ck_assert_str_eq(joined(span_of("%2e%2e/x")), "https://hooks.example:8443/in/%252e%252e/x?t=s3cret");
}
END_TEST

/* Some servers drop path parameters or turn backslashes before they look at the path. */
START_TEST(what_a_server_may_take_for_a_dot_segment_is_refused)
{
    static const char *const bad[] = {"..;",   "..;/admin", "a/..;x=1/b", ".;",   "a/.;/b", "..\\x",  ".\\x",
                                      "a\\..", "a\\..\\b",  "a\\..;",     "..\\", "..;\\x", "x;y/..", "..;\\..;/x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(joined(span_of(bad[i])) == NULL, "%s", bad[i]);
    ck_assert_str_eq(joined(span_of("a;../b")), "https://hooks.example:8443/in/a;../b?t=s3cret");
    ck_assert_str_eq(joined(span_of("a..;x/...;/..a\\b")), "https://hooks.example:8443/in/a..;x/...;/..a%5Cb?t=s3cret");
}
END_TEST

START_TEST(dot_segments_control_characters_and_endless_paths_are_refused)
{
    static const char *const bad[] = {".", "..", "../x", "a/..", "a/../b", "/..", "a/./b", "a\nb", "a\tb", "\x7f"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_msg(joined(span_of(bad[i])) == NULL, "case %zu", i);
    ck_assert_ptr_null(joined((struct span){"a\0b", 3}));
    static char endless[HTTP_URL_MAX];
    memset(endless, 'a', sizeof endless);
    ck_assert_ptr_null(joined((struct span){endless, sizeof endless}));
    memset(endless, '%', sizeof endless);
    ck_assert_ptr_null(joined((struct span){endless, HTTP_URL_MAX / 2}));
    ck_assert_ptr_nonnull(joined((struct span){endless, HTTP_URL_MAX / 4}));
}
END_TEST

START_TEST(messages_do_not_repeat_the_url)
{
    static const char *const bad[] = {"ftp://me:geheim@h/",     "http://me:geheim@h/#f",     "http://me:geheim@h h/",
                                      "http://me:geheim@/x",    "http://me:geheim@h:99999/", "http://me%0a:geheim@h/",
                                      "http://me:geheim%01@h/", "https://me:geheim@h%7Fh/"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct http_url unused = {0};
        struct error err;
        ck_assert_msg(!http_url_init(&unused, bad[i], &err), "%s", bad[i]);
        ck_assert_int_eq(err.kind, ERROR_CONFIG);
        ck_assert_ptr_null(strstr(err.text, "geheim"));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_url");
    TCase *tcase = tcase_create("http_url");
    tcase_add_checked_fixture(tcase, start, stop);
    tcase_add_test(tcase, credentials_and_query_are_kept_apart);
    tcase_add_test(tcase, destination_is_appended_to_the_path);
    tcase_add_test(tcase, whatever_the_destination_holds_stays_in_the_path);
    tcase_add_test(tcase, what_a_server_may_take_for_a_dot_segment_is_refused);
    tcase_add_test(tcase, dot_segments_control_characters_and_endless_paths_are_refused);
    tcase_add_test(tcase, messages_do_not_repeat_the_url);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
