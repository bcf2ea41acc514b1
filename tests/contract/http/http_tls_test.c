#include "sinks/http/http_request.h"
#include "tests/contract/sink_contract.h"
#include "tests/support/http_server.h"

#include <openssl/ssl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Sixteen handshakes at once take a machine that has other work to do their time. */
#define PATIENCE_MS 120000

extern const struct sink_type sink_http;

static char dir[] = "/tmp/pgcourier-tls-XXXXXX";
static char ca[64];
static struct http_server *server;
static char url[64];
static struct http_settings settings;
static struct contract_setup setup = {
    .name = "http over TLS", .type = &sink_http, .settings = &settings, .destination = ""};

/* ca.pem signs all but self.pem. */
static const char make_certificates[] =
    "set -e; cd '%s'; exec >/dev/null 2>&1\n"
    "new='openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'\n"
    "$new -x509 -days 2 -subj /CN=test-ca -keyout ca.key -out ca.pem\n"
    "$new -x509 -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1 -keyout self.key -out self.pem\n"
    "sign() {\n"
    "  $new -subj /CN=$1 -addext subjectAltName=$2 -keyout $1.key -out $1.csr\n"
    "  openssl x509 -req -in $1.csr -CA ca.pem -CAkey ca.key -CAcreateserial -copy_extensions copy $3 -out $1.pem\n"
    "}\n"
    "sign good IP:127.0.0.1 '-days 2'\n"
    "openssl x509 -in good.pem -noout -pubkey | openssl pkey -pubin -outform der | openssl dgst -sha256 -binary |\n"
    "  base64 | tr -d '\\n' > good.pin\n"
    "sign elsewhere DNS:elsewhere.example '-days 2'\n"
    "sign expired IP:127.0.0.1 '-days 0'\n"; /* from now to now; openssl 3.5 takes no negative number */

static bool make_all(void)
{
    char script[2048];
    if (!mkdtemp(dir))
        return false;
    snprintf(ca, sizeof ca, "%s/ca.pem", dir);
    snprintf(script, sizeof script, make_certificates, dir);
    return system(script) == 0;
}

/* What systems refuse of their own accord is allowed here to client and server, so that what is refused all the same,
 * is refused by the sink. OpenSSL reads it once, when it is first used. */
static bool allow_what_is_outdated(void)
{
    static const char text[] = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = outdated\n"
                               "[outdated]\nMinProtocol = TLSv1\nCipherString = DEFAULT@SECLEVEL=0\n";
    char path[64];
    snprintf(path, sizeof path, "%s/openssl.cnf", dir);
    FILE *file = fopen(path, "w");
    if (!file)
        return false;
    bool written = fputs(text, file) >= 0;
    return fclose(file) == 0 && written && setenv("OPENSSL_CONF", path, 1) == 0;
}

static bool remove_all(void)
{
    char script[128];
    snprintf(script, sizeof script, "rm -rf '%s'", dir);
    return system(script) == 0;
}

static void serve(const char *name)
{
    char certificate[80], key[80];
    snprintf(certificate, sizeof certificate, "%s/%s.pem", dir, name);
    snprintf(key, sizeof key, "%s/%s.key", dir, name);
    server = http_server_start(certificate, key);
    snprintf(url, sizeof url, "https://127.0.0.1:%d/in", http_server_port(server));
    settings = (struct http_settings){.url = url,
                                      .timeout_us = PATIENCE_MS * MS_US,
                                      .connect_timeout_us = PATIENCE_MS * MS_US,
                                      .max_response = 65536,
                                      .connections = 16,
                                      .ca_file = ca};
}

static void serve_good(struct contract_setup *unused)
{
    (void)unused;
    serve("good");
}

static void stop(struct contract_setup *unused)
{
    (void)unused;
    http_server_stop(server);
    server = NULL;
}

static void each_stop(void)
{
    stop(&setup);
}

static void nothing(void)
{
}

/* The one event must not have left, and the destination is to blame. */
static void refuses(enum error_kind kind)
{
    struct contract *c = contract_open(&setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_RETRY);
    ck_assert_msg(d->cause->kind == kind, "%s", d->cause->text);
    ck_assert_uint_eq(http_server_counts(server).requests, 0);
    ck_assert_int_eq(contract_probe(c, "", PATIENCE_MS), REACH_NO);
    contract_end(c);
}

START_TEST(certificate_of_the_configured_authority_is_accepted)
{
    serve("good");
    struct contract *c = contract_open(&setup);
    char key[16];
    for (int i = 0; i < 40; i++) {
        snprintf(key, sizeof key, "key-%d", i % 20);
        contract_add(c, key, span_of("{}"));
    }
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 40);
    ck_assert_uint_eq(http_server_counts(server).requests, 40);
    ck_assert_uint_le(http_server_counts(server).connections, 16);
    ck_assert_int_eq(contract_probe(c, "", PATIENCE_MS), REACH_YES);
    contract_end(c);
}
END_TEST

#define ANOTHER_KEY "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

START_TEST(key_that_is_pinned_is_accepted)
{
    char path[80], pins[200], hash[64] = "";
    snprintf(path, sizeof path, "%s/good.pin", dir);
    FILE *file = fopen(path, "r");
    ck_assert(file && fgets(hash, sizeof hash, file));
    fclose(file);
    snprintf(pins, sizeof pins, "%s;sha256//%s", ANOTHER_KEY, hash);
    serve("good");
    settings.pinned_public_key = pins;
    struct contract *c = contract_open(&setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    contract_end(c);
    stop(&setup);
    serve("elsewhere"); /* a pin takes the place of nothing */
    settings.pinned_public_key = pins;
    refuses(ERROR_ROUTE);
}
END_TEST

START_TEST(key_that_is_not_pinned_is_refused)
{
    static char pin[] = ANOTHER_KEY;
    serve("good");
    settings.pinned_public_key = pin;
    refuses(ERROR_ROUTE);
}
END_TEST

START_TEST(pin_that_is_none_is_refused_at_open)
{
    static const char *const bad[] = {"",
                                      "/etc/key.pem",
                                      "sha256//",
                                      "sha256//AAAA",
                                      "sha1//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
                                      ANOTHER_KEY ";",
                                      ANOTHER_KEY "," ANOTHER_KEY,
                                      ANOTHER_KEY ";/etc/key.pem"};
    serve("good");
    struct error err;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        settings.pinned_public_key = (char *)(uintptr_t)bad[i];
        ck_assert_msg(!sink_open(&sink_http, "hook", &settings, &err), "%s", bad[i]);
        ck_assert_int_eq(err.kind, ERROR_CONFIG);
        ck_assert_ptr_nonnull(strstr(err.text, "pinned_public_key: write sha256//"));
    }
    static char pin[] = ANOTHER_KEY, plain[] = "http://127.0.0.1/";
    settings.pinned_public_key = pin;
    settings.url = plain;
    ck_assert_ptr_null(sink_open(&sink_http, "hook", &settings, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "pinned_public_key: http:// has no keys"));
}
END_TEST

START_TEST(self_signed_certificate_is_refused)
{
    serve("self");
    refuses(ERROR_ROUTE);
}
END_TEST

START_TEST(unknown_authority_is_refused)
{
    serve("good");
    settings.ca_file = NULL; /* the system's */
    refuses(ERROR_ROUTE);
}
END_TEST

START_TEST(certificate_of_another_host_is_refused)
{
    serve("elsewhere");
    refuses(ERROR_ROUTE);
}
END_TEST

START_TEST(expired_certificate_is_refused)
{
    serve("expired");
    refuses(ERROR_ROUTE);
}
END_TEST

START_TEST(unreadable_ca_file_is_refused_at_open)
{
    serve("good");
    settings.ca_file = "/nonexistent/ca.pem";
    struct error err;
    ck_assert_ptr_null(sink_open(&sink_http, "hook", &settings, &err));
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    ck_assert_str_eq(err.text, "ca_file: /nonexistent/ca.pem: No such file or directory");
}
END_TEST

START_TEST(server_without_tls_is_refused)
{
    serve("good");
    stop(&setup);
    server = http_server_start(NULL, NULL);
    snprintf(url, sizeof url, "https://127.0.0.1:%d/in", http_server_port(server));
    settings.connect_timeout_us = 300 * MS_US; /* the plain server waits for the end of a head that never comes */
    refuses(ERROR_UNREACHABLE);
}
END_TEST

static size_t swallow(char *bytes, size_t size, size_t count, void *data)
{
    (void)bytes, (void)data;
    return size * count;
}

/* The same server, asked by a handle like the sink's that may speak it. */
static CURLcode outcome_with(long least_version)
{
    struct http_url parsed;
    struct error err;
    ck_assert(http_url_init(&parsed, url, &err));
    CURL *easy = curl_easy_init();
    ck_assert(http_handle_init(easy, &settings, &parsed));
    curl_easy_setopt(easy, CURLOPT_POSTFIELDS, "{}");
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, swallow);
    curl_easy_setopt(easy, CURLOPT_SSLVERSION, least_version);
    CURLcode code = curl_easy_perform(easy);
    curl_easy_cleanup(easy);
    http_url_done(&parsed);
    return code;
}

START_TEST(server_whose_tls_is_outdated_is_refused)
{
    static const int versions[] = {TLS1_VERSION, TLS1_1_VERSION};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        serve("good");
        http_server_limit_tls(server, versions[i]);
        refuses(ERROR_UNREACHABLE);
        ck_assert_int_eq(outcome_with(CURL_SSLVERSION_TLSv1_0), CURLE_OK);
        ck_assert_uint_eq(http_server_counts(server).requests, 1);
        stop(&setup);
    }
    serve("good");
    http_server_limit_tls(server, TLS1_2_VERSION);
    struct contract *c = contract_open(&setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    contract_end(c);
}
END_TEST

/* From https to https is the one way that no list of schemes closes. */
START_TEST(redirect_to_https_is_a_failure_and_not_followed)
{
    serve("good");
    struct http_server *first = server;
    serve("good");
    static char answer[160];
    snprintf(answer, sizeof answer, "HTTP/1.1 307 Moved\r\nLocation: %s\r\nContent-Length: 0\r\n\r\n", url);
    http_server_script(first, (struct http_script){.answer = answer});
    snprintf(url, sizeof url, "https://127.0.0.1:%d/in", http_server_port(first));
    struct contract *c = contract_open(&setup);
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    enum verdict verdict = d->verdict;
    enum error_kind kind = d->cause ? d->cause->kind : ERROR_NONE;
    contract_end(c);
    size_t requests = http_server_counts(first).requests;
    http_server_stop(first);
    ck_assert_int_eq(verdict, VERDICT_RETRY);
    ck_assert_int_eq(kind, ERROR_ROUTE);
    ck_assert_uint_eq(requests, 1);
    ck_assert_uint_eq(http_server_counts(server).connections, 0);
}
END_TEST

START_TEST(proxies_of_the_environment_are_ignored_with_tls_too)
{
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"};
    serve("good");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        setenv(names[i], "http://127.0.0.1:1", 1);
        struct contract *c = contract_open(&setup);
        struct delivery *d = contract_add(c, "k", span_of("{}"));
        bool done = contract_run(c, PATIENCE_MS);
        unsetenv(names[i]);
        ck_assert(done);
        ck_assert_msg(d->verdict == VERDICT_ACKED, "%s", names[i]);
        contract_end(c);
    }
}
END_TEST

static struct delivery *deliver(struct contract *c)
{
    struct delivery *d = contract_add(c, "k", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    return d;
}

/* With TLS 1.3 a server sends session tickets on its own account. */
START_TEST(connection_is_kept_with_each_version_of_tls)
{
    static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};
    for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
        serve("good");
        http_server_limit_tls(server, versions[i]);
        struct contract *c = contract_open(&setup);
        for (int n = 0; n < 20; n++)
            ck_assert_int_eq(deliver(c)->verdict, VERDICT_ACKED);
        ck_assert_uint_eq(http_server_counts(server).requests, 20);
        ck_assert_uint_eq(http_server_counts(server).connections, 1);
        contract_end(c);
        stop(&setup);
    }
}
END_TEST

#define REFUSED "HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n"

static void next_is_refused(struct contract *c)
{
    http_server_script(server, (struct http_script){.answer = REFUSED});
    struct delivery *d = deliver(c);
    ck_assert_int_eq(d->verdict, VERDICT_REJECTED);
    ck_assert_ptr_nonnull(strstr(d->cause->text, "HTTP 400"));
    ck_assert_uint_eq(http_server_counts(server).requests, 2);
    ck_assert_uint_eq(http_server_counts(server).connections, 2);
}

START_TEST(bytes_that_come_after_an_answer_are_no_answer_to_the_next_event_with_tls)
{
    static const char *const leftovers[] = {HTTP_SERVER_OK, "HTTP/1.1 20", "x"};
    for (size_t i = 0; i < sizeof leftovers / sizeof leftovers[0]; i++) {
        serve("good");
        http_server_script(server, (struct http_script){.answer = HTTP_SERVER_OK, .late = leftovers[i]});
        struct contract *c = contract_open(&setup);
        ck_assert_int_eq(deliver(c)->verdict, VERDICT_ACKED);
        http_server_release(server);
        while (http_server_counts(server).late == 0)
            sched_yield();
        next_is_refused(c);
        contract_end(c);
        stop(&setup);
    }
}
END_TEST

/* The body and what comes after it are one record: libcurl asks OpenSSL for as much as the body has, and the rest is
 * decrypted and no longer in the socket. */
START_TEST(bytes_that_openssl_has_decrypted_are_no_answer_to_the_next_event)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
    serve("good");
    http_server_script(server, (struct http_script){.answer = HTTP_SERVER_OK HTTP_SERVER_OK, .first = sizeof head - 1});
    struct contract *c = contract_open(&setup);
    ck_assert_int_eq(deliver(c)->verdict, VERDICT_ACKED);
    next_is_refused(c);
    contract_end(c);
}
END_TEST

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as pgcourier does: OpenSSL writes without MSG_NOSIGNAL */
    setup.start = serve_good;
    setup.stop = stop;
    setup.deaf_destination = "deaf";
    Suite *suite = suite_create("http_tls");
    TCase *tcase = tcase_create("certificates");
    tcase_add_checked_fixture(tcase, nothing, each_stop);
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, certificate_of_the_configured_authority_is_accepted);
    tcase_add_test(tcase, key_that_is_pinned_is_accepted);
    tcase_add_test(tcase, key_that_is_not_pinned_is_refused);
    tcase_add_test(tcase, pin_that_is_none_is_refused_at_open);
    tcase_add_test(tcase, self_signed_certificate_is_refused);
    tcase_add_test(tcase, unknown_authority_is_refused);
    tcase_add_test(tcase, certificate_of_another_host_is_refused);
    tcase_add_test(tcase, expired_certificate_is_refused);
    tcase_add_test(tcase, unreadable_ca_file_is_refused_at_open);
    tcase_add_test(tcase, server_without_tls_is_refused);
    tcase_add_test(tcase, server_whose_tls_is_outdated_is_refused);
    tcase_add_test(tcase, redirect_to_https_is_a_failure_and_not_followed);
    tcase_add_test(tcase, proxies_of_the_environment_are_ignored_with_tls_too);
    tcase_add_test(tcase, connection_is_kept_with_each_version_of_tls);
    tcase_add_test(tcase, bytes_that_come_after_an_answer_are_no_answer_to_the_next_event_with_tls);
    tcase_add_test(tcase, bytes_that_openssl_has_decrypted_are_no_answer_to_the_next_event);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, contract_tcase(&setup));
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    bool made = make_all() && allow_what_is_outdated();
    if (made)
        srunner_run_all(runner, CK_ENV);
    else
        fprintf(stderr, "http_tls_test: no certificates: install openssl\n");
    bool removed = remove_all();
    int failed = !made || !removed || srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
