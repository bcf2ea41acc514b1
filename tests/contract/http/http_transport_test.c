/* The HTTP sink: what its requests may use is in the configuration; nothing that surrounds the process adds to it. */

#include "tests/contract/http/http_setup.h"
#include "tests/support/run_suite.h"
#include "tests/support/temporary_file.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t swallow(char *bytes, size_t size, size_t count, void *data)
{
    (void)bytes, (void)data;
    return size * count;
}

/* A handle as the sink makes them for that URL, which somebody then sends elsewhere: what comes of it. */
static CURLcode outcome_of(const char *configured, const char *elsewhere, bool follow)
{
    struct http_url url;
    struct error err;
    ck_assert(http_url_init(&url, configured, &err));
    CURL *easy = curl_easy_init();
    ck_assert(http_handle_init(easy, &http.settings, &url));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "{}");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, swallow);
    if (elsewhere)
        curl_easy_setopt(easy, CURLOPT_URL, elsewhere);
    if (follow)
        curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 1L);
    CURLcode code = curl_easy_perform(easy);
    curl_easy_cleanup(easy);
    http_url_done(&url);
    return code;
}

START_TEST(request_speaks_the_configured_scheme_and_no_other)
{
    char secured[64];
    snprintf(secured, sizeof secured, "https%s", http.url + strlen("http"));
    ck_assert_int_eq(outcome_of(http.url, NULL, false), CURLE_OK);
    ck_assert_int_eq(outcome_of(http.url, secured, false), CURLE_UNSUPPORTED_PROTOCOL);
    ck_assert_int_eq(outcome_of(secured, http.url, false), CURLE_UNSUPPORTED_PROTOCOL);
    const char *const others[] = {"file:///proc/self/environ", "ftp://127.0.0.1:1/", "gopher://127.0.0.1:1/",
                                  "dict://127.0.0.1:1/", "telnet://127.0.0.1:1/"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        ck_assert_msg(outcome_of(http.url, others[i], false) == CURLE_UNSUPPORTED_PROTOCOL, "%s", others[i]);
        ck_assert_msg(outcome_of(secured, others[i], false) == CURLE_UNSUPPORTED_PROTOCOL, "%s", others[i]);
    }
    ck_assert_uint_eq(http_server_counts(http.server).connections, 1);
}
END_TEST

/* The second lock: redirects are not followed. */
START_TEST(redirect_could_lead_to_https_only)
{
    const char *const others[] = {http.url, "file:///proc/self/environ", "ftp://127.0.0.1:1/"};
    char answers[sizeof others / sizeof others[0]][160]; /* the server may not have let go of the last one yet */
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        snprintf(answers[i], sizeof answers[i], "HTTP/1.1 307 Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n",
                 others[i]);
        http_server_script(http.server, (struct http_script){.answer = answers[i]});
        ck_assert_msg(outcome_of(http.url, NULL, true) == CURLE_UNSUPPORTED_PROTOCOL, "%s", others[i]);
        ck_assert_uint_eq(http_server_counts(http.server).requests, i + 1);
    }
}
END_TEST

/* Of the account that the relay runs under. */
START_TEST(netrc_adds_no_credentials)
{
    char home[128], path[160], named[64];
    temporary_folder(home, sizeof home);
    snprintf(path, sizeof path, "%s/.netrc", home);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs("machine 127.0.0.1 login canary password canary\nmachine 127.0.0.1 login named password canary\n"
          "default login canary password canary\n",
          file);
    fclose(file);
    ck_assert_int_eq(chmod(path, 0600), 0);
    const char *usual = getenv("HOME");
    char *before = usual ? strdup(usual) : NULL;
    setenv("HOME", home, 1);
    enum error_kind kind;
    ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_ACKED);
    bool none = http_lacks_header("Authorization");
    snprintf(named, sizeof named, "http://named@%s", http.url + strlen("http://"));
    http.settings.url = named;
    ck_assert_int_eq(http_verdict_of_one(&kind), VERDICT_ACKED);
    bool user_alone = http_has_header("Authorization", "Basic bmFtZWQ6"); /* named: */
    if (before)
        setenv("HOME", before, 1);
    else
        unsetenv("HOME");
    free(before);
    unlink(path);
    rmdir(home);
    ck_assert(none);
    ck_assert(user_alone);
}
END_TEST

START_TEST(proxies_of_the_environment_are_ignored)
{
    static const char *const names[] = {"http_proxy", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        setenv(names[i], "http://127.0.0.1:1", 1);
        enum error_kind kind;
        enum verdict verdict = http_verdict_of_one(&kind);
        unsetenv(names[i]);
        ck_assert_msg(verdict == VERDICT_ACKED, "%s", names[i]);
    }
}
END_TEST

/* It would send events past the proxy, to a host that is meant to be reached through it. */
START_TEST(exceptions_from_proxies_in_the_environment_are_ignored)
{
    static const char *const names[] = {"no_proxy", "NO_PROXY"};
    http.settings.proxy = http.url;
    http.settings.url = "http://receiver.invalid/in";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        setenv(names[i], "*", 1);
        enum error_kind kind;
        enum verdict verdict = http_verdict_of_one(&kind);
        unsetenv(names[i]);
        ck_assert_msg(verdict == VERDICT_ACKED, "%s", names[i]);
        ck_assert_ptr_eq(strstr(http_server_head(http.server), "POST http://receiver.invalid/in "),
                         http_server_head(http.server));
    }
}
END_TEST

static TCase *transport_tcase(void)
{
    TCase *tcase = http_tcase("http transport");
    tcase_add_test(tcase, request_speaks_the_configured_scheme_and_no_other);
    tcase_add_test(tcase, redirect_could_lead_to_https_only);
    tcase_add_test(tcase, netrc_adds_no_credentials);
    tcase_add_test(tcase, proxies_of_the_environment_are_ignored);
    tcase_add_test(tcase, exceptions_from_proxies_in_the_environment_are_ignored);
    return tcase;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as pgcourier does: OpenSSL writes without MSG_NOSIGNAL */
    Suite *suite = suite_create("http transport");
    suite_add_tcase(suite, transport_tcase());
    return run_suite(suite);
}
