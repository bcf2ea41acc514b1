/* The redis sink over TLS, against a real redis-server with a certificate for localhost and 127.0.0.1. Without TLS in
 * hiredis (Debian 12) there is nothing to test here; redis_test.c checks that rediss:// is refused then. */
#include "sinks/redis/redis_settings.h"
#include "tests/contract/sink_contract.h"
#include "tests/support/run_suite.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef HAVE_HIREDIS_SSL

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 30000

extern const struct sink_type sink_redis;

static char directory[64], path[96], certificate[96], key[96], url[64];
static int port;
static pid_t server;
static struct redis_settings settings;
static struct contract_setup setup = {
    .name = "redis tls", .type = &sink_redis, .settings = &settings, .destination = "orders"};

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&address, size) != 0 || getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        abort();
    close(fd);
    return ntohs(address.sin_port);
}

static pid_t run(char *const argv[])
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that crashes leaves nothing behind */
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        execvp(argv[0], argv);
        _exit(127);
    }
    return pid;
}

static void certificate_make(void)
{
    char *argv[] = {"openssl",
                    "req",
                    "-x509",
                    "-newkey",
                    "ec",
                    "-pkeyopt",
                    "ec_paramgen_curve:P-256",
                    "-nodes",
                    "-days",
                    "2",
                    "-subj",
                    "/CN=localhost",
                    "-addext",
                    "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout",
                    key,
                    "-out",
                    certificate,
                    NULL};
    int status = 0;
    if (waitpid(run(argv), &status, 0) < 0 || status != 0) {
        fprintf(stderr, "openssl does not make a certificate: is it installed?\n");
        exit(EXIT_FAILURE);
    }
}

static void server_start(void)
{
    char tls_port[16];
    snprintf(directory, sizeof directory, "/tmp/pgcourier-redis-XXXXXX");
    if (!mkdtemp(directory))
        abort();
    snprintf(path, sizeof path, "%s/redis.sock", directory);
    snprintf(certificate, sizeof certificate, "%s/certificate.pem", directory);
    snprintf(key, sizeof key, "%s/key.pem", directory);
    certificate_make();
    snprintf(tls_port, sizeof tls_port, "%d", port = free_port());
    char *argv[] = {"redis-server",
                    "--port",
                    "0",
                    "--bind",
                    "127.0.0.1 127.0.0.2",
                    "--unixsocket",
                    path,
                    "--tls-port",
                    tls_port,
                    "--tls-cert-file",
                    certificate,
                    "--tls-key-file",
                    key,
                    "--tls-ca-cert-file",
                    certificate,
                    "--tls-auth-clients",
                    "no",
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--dir",
                    directory,
                    NULL};
    server = run(argv);
    for (instant_us end = clock_now() + PATIENCE_MS * MS_US; clock_now() < end; usleep(5000)) {
        redisContext *context = redisConnectUnix(path);
        bool up = context && !context->err;
        redisFree(context);
        if (up)
            return;
    }
    fprintf(stderr, "redis-server does not start: is it installed, and with TLS?\n");
    exit(EXIT_FAILURE);
}

static void server_stop(void)
{
    kill(server, SIGTERM);
    waitpid(server, NULL, 0);
    unlink(path);
    unlink(certificate);
    unlink(key);
    rmdir(directory);
}

static void start(struct contract_setup *s)
{
    (void)s;
    snprintf(url, sizeof url, "rediss://localhost:%d", port);
    settings = (struct redis_settings){.url = url, .timeout_us = 5 * SECOND_US, .tls_ca = certificate};
}

static void start_test(void)
{
    start(&setup);
}

static struct contract *deliver_one(enum verdict verdict)
{
    struct contract *c = contract_open(&setup);
    struct delivery *d = contract_add(c, "7", span_of("{}"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_msg(d->verdict == verdict, "%s: %s", verdict_name(d->verdict), d->cause ? d->cause->text : "");
    return c;
}

START_TEST(address_in_the_certificate_is_trusted)
{
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d", port);
    contract_end(deliver_one(VERDICT_ACKED));
}
END_TEST

START_TEST(large_events_pass_in_many_records)
{
    struct contract *c = contract_open(&setup);
    size_t size = (size_t)3 << 20;
    char *large = memset(malloc(size), 'x', size);
    for (int i = 0; i < 8; i++)
        contract_add(c, NULL, (struct span){large, size});
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 8);
    contract_end(c);
    free(large);
}
END_TEST

START_TEST(name_that_is_not_in_the_certificate_is_refused)
{
    snprintf(url, sizeof url, "rediss://127.0.0.2:%d", port);
    struct contract *c = deliver_one(VERDICT_RETRY);
    ck_assert_int_eq(c->ds[0]->cause->kind, ERROR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(c->ds[0]->cause->text, "mismatch"));
    contract_end(c);
}
END_TEST

START_TEST(certificate_of_an_unknown_authority_is_refused)
{
    settings.tls_ca = NULL;
    struct contract *c = deliver_one(VERDICT_RETRY);
    ck_assert_int_eq(c->ds[0]->cause->kind, ERROR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(c->ds[0]->cause->text, "self-signed certificate"));
    contract_end(c);
}
END_TEST

START_TEST(authorities_that_cannot_be_read_are_refused)
{
    struct error err;
    settings.tls_ca = (char[]){"/nonexistent.pem"};
    ck_assert_ptr_null(sink_open(&sink_redis, "mem", &settings, &err));
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    ck_assert_ptr_nonnull(strstr(err.text, "sink mem: cannot read certificates from tls_ca /nonexistent.pem: "));
}
END_TEST

START_TEST(server_is_silent_only_for_the_timeout)
{
    int deaf = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* accepts, and never speaks TLS */
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    ck_assert_int_eq(bind(deaf, (struct sockaddr *)&address, size), 0);
    ck_assert_int_eq(listen(deaf, 8), 0);
    ck_assert_int_eq(getsockname(deaf, (struct sockaddr *)&address, &size), 0);
    snprintf(url, sizeof url, "rediss://127.0.0.1:%d", ntohs(address.sin_port));
    settings.timeout_us = 100 * MS_US;
    struct contract *c = deliver_one(VERDICT_RETRY);
    ck_assert_uint_lt(c->turns, 20);
    contract_end(c);
    close(deaf);
}
END_TEST

static TCase *tls_tcase(void)
{
    TCase *tcase = tcase_create("only tls");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, start_test, NULL);
    tcase_add_test(tcase, address_in_the_certificate_is_trusted);
    tcase_add_test(tcase, large_events_pass_in_many_records);
    tcase_add_test(tcase, name_that_is_not_in_the_certificate_is_refused);
    tcase_add_test(tcase, certificate_of_an_unknown_authority_is_refused);
    tcase_add_test(tcase, authorities_that_cannot_be_read_are_refused);
    tcase_add_test(tcase, server_is_silent_only_for_the_timeout);
    return tcase;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    server_start();
    setup.start = start;
    Suite *suite = suite_create("redis_tls");
    suite_add_tcase(suite, contract_tcase(&setup));
    suite_add_tcase(suite, tls_tcase());
    int status = run_suite(suite);
    server_stop();
    return status;
}

#else

int main(void)
{
    puts("redis_tls: skipped, this hiredis has no TLS");
    return EXIT_SUCCESS;
}

#endif
