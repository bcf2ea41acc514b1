#include "sinks/http_request.h"
#include "tests/contract/sink_contract.h"
#include "tests/support/http_server.h"

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
    tcase_add_test(tcase, self_signed_certificate_is_refused);
    tcase_add_test(tcase, unknown_authority_is_refused);
    tcase_add_test(tcase, certificate_of_another_host_is_refused);
    tcase_add_test(tcase, expired_certificate_is_refused);
    tcase_add_test(tcase, unreadable_ca_file_is_refused_at_open);
    tcase_add_test(tcase, server_without_tls_is_refused);
    suite_add_tcase(suite, tcase);
    suite_add_tcase(suite, contract_tcase(&setup));
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    bool made = make_all();
    if (made)
        srunner_run_all(runner, CK_ENV);
    else
        fprintf(stderr, "http_tls_test: no certificates: install openssl\n");
    bool removed = remove_all();
    int failed = !made || !removed || srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
