/* Which servers libpq is told to call, by name and address, and what becomes of names that nobody knows. */
#include "relay/postgres/db_hosts.h"

#include "tests/support/played_resolver.h"
#include "tests/support/run_suite.h"

#include <stdlib.h>
#include <unistd.h>

static const char *const variables[] = {"PGHOST", "PGHOSTADDR", "PGPORT", "PGSERVICE", "PGSERVICEFILE"};

static struct db_hosts *hosts;
static struct error err;
static instant_us now = 1000 * SECOND_US;

static void set_up(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        unsetenv(variables[i]);
    resolver_begin();
}

static void tear_down(void)
{
    db_hosts_free(hosts);
    hosts = NULL;
}

/* Until there is an outcome, in which no time passes but what is waited for in vain. */
static enum db_hosts_state outcome(void)
{
    struct pollset *ps = pollset_new();
    enum db_hosts_state state;
    while ((state = db_hosts_turn(hosts, now, &err)) == DB_HOSTS_PENDING) {
        pollset_clear(ps);
        db_hosts_prepare(hosts, ps);
        ck_assert(pollset_wait(ps, 0, &err));
    }
    pollset_free(ps);
    return state;
}

static void open_hosts(const char *conninfo)
{
    hosts = db_hosts_new(conninfo);
    db_hosts_begin(hosts, now);
}

/* Why a connection to those that are left has failed. */
static const char *explained(void)
{
    error_set(&err, ERROR_UNREACHABLE, "it failed");
    db_hosts_explain(hosts, &err);
    return err.text;
}

static void assert_list(const char *host, const char *hostaddr, const char *port)
{
    struct db_hosts_list list = db_hosts_list(hosts);
    ck_assert_pstr_eq(list.host, host);
    ck_assert_pstr_eq(list.hostaddr, hostaddr);
    ck_assert_pstr_eq(list.port, port);
}

static const struct {
    const char *conninfo, *host, *hostaddr, *port;
} named[] = {
    {"host=one.test", "one.test", "127.0.0.1", "5432"},
    {"host=one.test port=6000", "one.test", "127.0.0.1", "6000"},
    {"postgresql://me:pw@one.test:6000/shop", "one.test", "127.0.0.1", "6000"},
    {"host=two.test", "two.test,two.test", "::1,127.0.0.1", "5432,5432"},
    {"postgresql://one.test:1,two.test:2,four.test:3/shop", "one.test,two.test,two.test,four.test",
     "127.0.0.1,::1,127.0.0.1,127.0.0.4", "1,2,2,3"},
    {"host=two.test,one.test port=6000", "two.test,two.test,one.test", "::1,127.0.0.1,127.0.0.1", "6000,6000,6000"},
    {"host=/run/a,one.test,10.0.0.1,::2,@b", "/run/a,one.test,10.0.0.1,::2,@b", ",127.0.0.1,,,",
     "5432,5432,5432,5432,5432"},
    {"host=one.test,x.test hostaddr=,10.0.0.1", "one.test,x.test", "127.0.0.1,10.0.0.1", "5432,5432"},
    {"host=,one.test port=,7", ",one.test", ",127.0.0.1", ",7"},
};

START_TEST(names_have_their_addresses_beside_them)
{
    open_hosts(named[_i].conninfo);
    ck_assert_int_eq(outcome(), DB_HOSTS_READY);
    assert_list(named[_i].host, named[_i].hostaddr, named[_i].port);
    ck_assert_str_eq(explained(), "it failed");
}
END_TEST

static const char *const plain[] = {
    "",
    "dbname=shop",
    "host=/run/postgresql",
    "host=@abstract",
    "host=10.0.0.1,::1",
    "hostaddr=10.0.0.1",
    "host=one.test hostaddr=10.0.0.1",
    "host=one.test,two.test hostaddr=10.0.0.1",
    "host=one.test,two.test port=1,2,3",
    "not a connection string",
};

START_TEST(string_that_needs_no_lookup_is_left_as_it_is)
{
    open_hosts(plain[_i]);
    ck_assert_int_eq(db_hosts_turn(hosts, now, &err), DB_HOSTS_READY);
    assert_list(NULL, NULL, NULL);
    ck_assert_int_eq(resolver_calls(), 0);
}
END_TEST

START_TEST(environment_and_service_file_count)
{
    char path[] = "/tmp/db_hosts_test.XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    fputs("[shop]\nhost=four.test\nport=7\n", file);
    fclose(file);
    setenv("PGHOST", "one.test", 1);
    open_hosts("dbname=shop");
    ck_assert_int_eq(outcome(), DB_HOSTS_READY);
    assert_list("one.test", "127.0.0.1", "5432");
    db_hosts_free(hosts);
    setenv("PGSERVICEFILE", path, 1);
    open_hosts("service=shop");
    ck_assert_int_eq(outcome(), DB_HOSTS_READY);
    assert_list("four.test", "127.0.0.4", "7");
    unlink(path);
}
END_TEST

/* What is left out of the lists libpq does not look up either: not by falling back on the string. */
static const struct {
    const char *conninfo, *host, *hostaddr, *port;
} partly[] = {
    {"host=none.test,one.test", "one.test", "127.0.0.1", "5432"},
    {"host=none.test,/run/a", "/run/a", "", "5432"},
    {"host=none.test,", ",", ",", "5432,5432"},
    {"host=none.test,/run/a hostaddr=,", "/run/a,/run/a", ",", "5432,5432"},
    {"host=none.test,one.test port=5,", "one.test,one.test", "127.0.0.1,127.0.0.1", ","},
};

START_TEST(name_that_is_not_known_is_left_out_and_told)
{
    open_hosts(partly[_i].conninfo);
    ck_assert_int_eq(outcome(), DB_HOSTS_READY);
    assert_list(partly[_i].host, partly[_i].hostaddr, partly[_i].port);
    ck_assert_ptr_nonnull(strstr(explained(), "it failed; could not translate host name \"none.test\" to address: "));
    db_hosts_settle(hosts);
    ck_assert_str_eq(explained(), "it failed");
}
END_TEST

START_TEST(without_a_name_that_is_known_the_attempt_has_failed)
{
    open_hosts("host=none.test,broken.test");
    ck_assert_int_eq(outcome(), DB_HOSTS_FAILED);
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "none.test"));
    ck_assert_ptr_nonnull(strstr(err.text, "broken.test"));
    struct error told = err;
    db_hosts_explain(hosts, &told); /* which says it already */
    ck_assert_str_eq(told.text, err.text);
    db_hosts_begin(hosts, now); /* it is asked for anew */
    ck_assert_int_eq(outcome(), DB_HOSTS_FAILED);
    ck_assert_int_eq(resolver_calls(), 4);
}
END_TEST

START_TEST(name_server_that_hangs_is_given_up_and_heard_in_the_end)
{
    open_hosts("host=hang.test");
    ck_assert_int_eq(db_hosts_turn(hosts, now, &err), DB_HOSTS_PENDING);
    ck_assert_int_eq(db_hosts_turn(hosts, now + DB_HOSTS_PATIENCE_US - 1, &err), DB_HOSTS_PENDING);
    ck_assert_int_eq(db_hosts_turn(hosts, now + DB_HOSTS_PATIENCE_US, &err), DB_HOSTS_FAILED);
    ck_assert_ptr_nonnull(strstr(err.text, "no answer within 10 s"));
    db_hosts_begin(hosts, now);
    ck_assert_int_eq(db_hosts_turn(hosts, now, &err), DB_HOSTS_PENDING);
    resolver_release();
    ck_assert_int_eq(outcome(), DB_HOSTS_READY);
    assert_list("hang.test", "127.0.0.1", "5432");
    ck_assert_int_eq(resolver_calls(), 1);
}
END_TEST

START_TEST(address_that_is_known_for_long_is_asked_for_anew)
{
    int before = resolver_threads();
    open_hosts("host=hang.test");
    ck_assert_int_eq(db_hosts_turn(hosts, now + DB_HOSTS_PATIENCE_US, &err), DB_HOSTS_FAILED);
    resolver_release();
    resolver_wait_for_threads_to_end(before);
    db_hosts_begin(hosts, now + 10 * MINUTE_US);
    ck_assert_int_eq(outcome(), DB_HOSTS_READY);
    ck_assert_int_eq(resolver_calls(), 2);
}
END_TEST

START_TEST(name_that_is_known_waits_a_little_for_the_others)
{
    open_hosts("host=hang.test,one.test");
    resolver_wait_for_calls_to_end(2, 1);
    ck_assert_int_eq(db_hosts_turn(hosts, now, &err), DB_HOSTS_PENDING);
    enum db_hosts_state state; /* the thread may have to come to its end yet */
    while ((state = db_hosts_turn(hosts, now + DB_HOSTS_OTHERS_US, &err)) == DB_HOSTS_PENDING)
        sched_yield();
    ck_assert_int_eq(state, DB_HOSTS_READY);
    assert_list("one.test", "127.0.0.1", "5432");
    ck_assert_ptr_nonnull(strstr(explained(), "hang.test"));
    db_hosts_begin(hosts, now);
    resolver_release();
    ck_assert_int_eq(outcome(), DB_HOSTS_READY);
    assert_list("hang.test,one.test", "127.0.0.1,127.0.0.1", "5432,5432");
    ck_assert_int_eq(resolver_calls(), 3);
}
END_TEST

START_TEST(hosts_are_freed_while_a_name_server_hangs)
{
    open_hosts("host=hang.test");
    ck_assert_int_eq(db_hosts_turn(hosts, now, &err), DB_HOSTS_PENDING);
    tear_down();
    resolver_release();
    resolver_wait_for_calls_to_end(1, 0);
}
END_TEST

static const struct {
    const char *conninfo, *host, *hostaddr, *port;
} passed_over[] = {
    {"host=10.0.0.1,/run/a,10.0.0.3 port=1,2,3", "/run/a,10.0.0.3,10.0.0.1", ",,", "2,3,1"},
    {"hostaddr=10.0.0.1,10.0.0.2", ",", "10.0.0.2,10.0.0.1", "5432,5432"},
    {"host=two.test,four.test", "two.test,four.test,two.test", "127.0.0.1,127.0.0.4,::1", "5432,5432,5432"},
    {"host=one.test", "one.test", "127.0.0.1", "5432"},
    {"host=10.0.0.1", NULL, NULL, NULL},
    {"host=/run/a", NULL, NULL, NULL},
    {"", NULL, NULL, NULL},
};

START_TEST(server_that_did_not_answer_in_time_goes_to_the_end)
{
    open_hosts(passed_over[_i].conninfo);
    ck_assert_int_eq(outcome(), DB_HOSTS_READY);
    db_hosts_pass_over(hosts);
    db_hosts_begin(hosts, now);
    ck_assert_int_eq(outcome(), DB_HOSTS_READY);
    assert_list(passed_over[_i].host, passed_over[_i].hostaddr, passed_over[_i].port);
}
END_TEST

START_TEST(each_server_has_its_turn_and_one_that_serves_ends_it)
{
    static const char *const turns[] = {"10.0.0.2,10.0.0.1", "10.0.0.1,10.0.0.2"};
    open_hosts("host=10.0.0.1,10.0.0.2");
    for (int i = 0; i < 4; i++) {
        db_hosts_pass_over(hosts);
        db_hosts_begin(hosts, now);
        ck_assert_int_eq(outcome(), DB_HOSTS_READY);
        assert_list(turns[i % 2], ",", "5432,5432");
    }
    db_hosts_settle(hosts);
    db_hosts_begin(hosts, now);
    ck_assert_int_eq(outcome(), DB_HOSTS_READY);
    assert_list(NULL, NULL, NULL);
}
END_TEST

START_TEST(attempt_without_threads_has_failed)
{
    resolver_refuse_threads = true;
    open_hosts("host=one.test");
    ck_assert_int_eq(outcome(), DB_HOSTS_FAILED);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot look up host name \"one.test\""));
    resolver_refuse_threads = false;
}
END_TEST

/* libpq takes the lists for what they are: each names the server that it would call. */
START_TEST(libpq_accepts_the_lists)
{
    static const struct db_default defaults[] = {{"connect_timeout", "2"}, {"port", "9"}, {NULL, NULL}};
    open_hosts("host=none.test,two.test,/nowhere,none.test port=1,2,3,4 dbname=d user=u");
    ck_assert_int_eq(outcome(), DB_HOSTS_READY);
    PGconn *conn = db_hosts_connect(hosts, "test", defaults);
    PQreset(conn);
    ck_assert_int_eq(PQstatus(conn), CONNECTION_BAD);
    const char *text = PQerrorMessage(conn);
    ck_assert_msg(strstr(text, "\"127.0.0.1\", port 2") != NULL, "%s", text);
    ck_assert_msg(strstr(text, "/nowhere/.s.PGSQL.3") != NULL, "%s", text);
    ck_assert_msg(!strstr(text, "translate"), "%s", text);
    PQfinish(conn);
}
END_TEST

#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

int main(void)
{
    Suite *suite = suite_create("db_hosts");
    TCase *tcase = tcase_create("db_hosts");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, names_have_their_addresses_beside_them, 0, COUNT(named));
    tcase_add_loop_test(tcase, string_that_needs_no_lookup_is_left_as_it_is, 0, COUNT(plain));
    tcase_add_test(tcase, environment_and_service_file_count);
    tcase_add_loop_test(tcase, name_that_is_not_known_is_left_out_and_told, 0, COUNT(partly));
    tcase_add_test(tcase, without_a_name_that_is_known_the_attempt_has_failed);
    tcase_add_test(tcase, name_server_that_hangs_is_given_up_and_heard_in_the_end);
    tcase_add_test(tcase, address_that_is_known_for_long_is_asked_for_anew);
    tcase_add_test(tcase, name_that_is_known_waits_a_little_for_the_others);
    tcase_add_test(tcase, hosts_are_freed_while_a_name_server_hangs);
    tcase_add_loop_test(tcase, server_that_did_not_answer_in_time_goes_to_the_end, 0, COUNT(passed_over));
    tcase_add_test(tcase, each_server_has_its_turn_and_one_that_serves_ends_it);
    tcase_add_test(tcase, attempt_without_threads_has_failed);
    tcase_add_test(tcase, libpq_accepts_the_lists);
    return run_suite(suite);
}
