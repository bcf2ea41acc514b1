/* Exit codes, and how a command connects: libpq and the answers of the database are played here. */
#include "relay/base/pollset.h"
#include "relay/commands/command.h"
#include "relay/postgres/connect.h"
#include "relay/postgres/query.h"
#include "sql_text.h"
#include "tests/support/played_resolver.h"
#include "tests/support/run_suite.h"

#include <stdlib.h>
#include <string.h>

#define BACKEND 7

static bool without_memory; /* as libpq would have it */
static ConnStatusType status;
static bool password_missing;
static int version;          /* of the server */
static const char *said;     /* libpq's message */
static const char *encoding; /* of the server; NULL: it has not said */
static const char *backend, *isolation;
static const char *unanswered; /* the statement that fails */
static char asked_encoding[16], asked_path_for[8], timeout[8];
static int shares;

PGconn *__real_PQconnectStartParams(const char *const *names, const char *const *values, int expand);
PGconn *__wrap_PQconnectStartParams(const char *const *names, const char *const *values, int expand);
ConnStatusType __wrap_PQstatus(const PGconn *conn);
void __wrap_PQreset(PGconn *conn);
char *__wrap_PQerrorMessage(const PGconn *conn);
int __wrap_PQconnectionNeedsPassword(const PGconn *conn);
int __wrap_PQconnectionUsedPassword(const PGconn *conn);
const char *__wrap_PQparameterStatus(const PGconn *conn, const char *name);
int __wrap_PQbackendPID(const PGconn *conn);
int __wrap_PQserverVersion(const PGconn *conn);
bool __wrap_query_share(PGconn *conn);
bool __wrap_query_script_in_time(PGconn *conn, const char *what, const char *sql, struct error *err);
PGresult *__wrap_query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                               struct error *err);

PGconn *__wrap_PQconnectStartParams(const char *const *names, const char *const *values, int expand)
{
    if (strcmp(names[0], "dbname") == 0) /* conninfo_check() */
        return __real_PQconnectStartParams(names, values, expand);
    ck_assert_str_eq(names[1], "connect_timeout");
    snprintf(timeout, sizeof timeout, "%s", values[1]);
    return without_memory ? NULL : __real_PQconnectStartParams(names, values, expand);
}

ConnStatusType __wrap_PQstatus(const PGconn *conn)
{
    (void)conn;
    return status;
}

void __wrap_PQreset(PGconn *conn)
{
    (void)conn;
}

char *__wrap_PQerrorMessage(const PGconn *conn)
{
    (void)conn;
    return (char *)(uintptr_t)said;
}

int __wrap_PQconnectionNeedsPassword(const PGconn *conn)
{
    (void)conn;
    return password_missing;
}

/* Always, so that nothing can be concluded from it. */
int __wrap_PQconnectionUsedPassword(const PGconn *conn)
{
    (void)conn;
    return 1;
}

const char *__wrap_PQparameterStatus(const PGconn *conn, const char *name)
{
    (void)conn;
    ck_assert_str_eq(name, "server_encoding");
    return encoding;
}

int __wrap_PQbackendPID(const PGconn *conn)
{
    (void)conn;
    return BACKEND;
}

int __wrap_PQserverVersion(const PGconn *conn)
{
    (void)conn;
    return version;
}

bool __wrap_query_share(PGconn *conn)
{
    (void)conn;
    shares++;
    return !without_memory;
}

bool __wrap_query_script_in_time(PGconn *conn, const char *what, const char *sql, struct error *err)
{
    (void)conn;
    bool good = !unanswered || strcmp(unanswered, sql) != 0;
    return good || error_set(err, ERROR_UNREACHABLE, "%s: no answer to %s", what, sql);
}

static PGresult *result_of(const char *text)
{
    static char name[] = "text";
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc columns[] = {{.name = name}, {.name = name}, {.name = name}, {.name = name}};
    char value[64] = "";
    ck_assert_int_eq(PQsetResultAttrs(result, 4, columns), 1);
    if (text)
        ck_assert_int_eq(PQsetvalue(result, 0, 0, value, snprintf(value, sizeof value, "%s", text)), 1);
    if (text)
        ck_assert_int_eq(PQsetvalue(result, 0, 3, value, snprintf(value, sizeof value, "%s", isolation)), 1);
    return result;
}

PGresult *__wrap_query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                               struct error *err)
{
    (void)conn;
    (void)count;
    if (sql == unanswered) {
        error_set(err, ERROR_UNREACHABLE, "%s: no answer", what);
        return NULL;
    }
    if (sql == sql_session_encoding)
        snprintf(asked_encoding, sizeof asked_encoding, "%s", params[0]);
    if (sql == sql_session_path)
        snprintf(asked_path_for, sizeof asked_path_for, "%s", params[0]);
    return result_of(sql == sql_session_hello ? backend : NULL);
}

static void set_up(void)
{
    without_memory = password_missing = false;
    status = CONNECTION_OK;
    version = 150018;
    said = "";
    encoding = "UTF8";
    isolation = "read committed";
    backend = "7";
    unanswered = NULL;
    shares = 0;
    asked_encoding[0] = asked_path_for[0] = timeout[0] = '\0';
}

static bool cannot_wait;

bool __real_pollset_wait(struct pollset *ps, instant_us now, struct error *err);
bool __wrap_pollset_wait(struct pollset *ps, instant_us now, struct error *err);

bool __wrap_pollset_wait(struct pollset *ps, instant_us now, struct error *err)
{
    return cannot_wait ? error_set(err, ERROR_RESOURCE, "poll: out of memory") : __real_pollset_wait(ps, now, err);
}

static const char *refusal(enum error_kind kind)
{
    static struct error err;
    ck_assert_ptr_null(command_connect("host=/nonexistent dbname=x password=hunter2", "test", &err));
    ck_assert_msg(err.kind == kind, "%s", err.text);
    return err.text;
}

static void connects(void)
{
    struct error err;
    PGconn *conn = command_connect("host=/nonexistent dbname=x", "test", &err);
    ck_assert_msg(conn != NULL, "%s", err.text);
    PQfinish(conn);
}

static const struct {
    enum error_kind kind;
    int code;
} codes[] = {
    {ERROR_NONE, 0},        {ERROR_USAGE, 64},       {ERROR_CONFIG, 78},     {ERROR_ROUTE, 78},
    {ERROR_PERMISSION, 77}, {ERROR_UNREACHABLE, 69}, {ERROR_OVERLOADED, 75}, {ERROR_TIMEOUT, 75},
    {ERROR_CONFLICT, 75},   {ERROR_RESOURCE, 75},    {ERROR_PROTOCOL, 70},   {ERROR_INTERNAL, 70},
};

START_TEST(exit_code_follows_the_kind_of_error)
{
    ck_assert_int_eq(exit_code_of(codes[_i].kind), codes[_i].code);
}
END_TEST

START_TEST(database_that_may_be_talked_to_in_plain_text_without_its_being_wanted_is_refused)
{
    struct error err;
    unsetenv("PGSSLMODE");
    ck_assert_ptr_null(command_connect("host=db.example password=hunter2", "test", &err));
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    ck_assert_str_eq(err.text,
                     "database: what goes to db.example is encrypted only if the server offers it, and its "
                     "certificate is not verified: sslmode=prefer, libpq's default; write "
                     "sslmode=verify-full sslrootcert=FILE, or sslmode=disable if the network itself is safe");
    ck_assert_str_eq(timeout, ""); /* nobody was called */
    PGconn *conn = command_connect("host=127.0.0.1 hostaddr=127.0.0.1 port=1", "test", &err);
    ck_assert_ptr_nonnull(conn);
    PQfinish(conn);
}
END_TEST

static const struct {
    const char *said;
    bool password;
    enum error_kind kind;
    const char *text;
} refusals[] = {
    {"no such host\n", false, ERROR_UNREACHABLE, "database: no such host"},
    {"server closed the connection\n", false, ERROR_UNREACHABLE, "database: server closed the connection"},
    {"timeout expired\n", false, ERROR_UNREACHABLE, "database: timeout expired"},
    {"fe_sendauth: no password supplied\n", true, ERROR_PERMISSION, "database: fe_sendauth: no password supplied"},
    {"FATAL:  28P01: wrong password\nLOCATION:  auth.c:1\n", false, ERROR_PERMISSION,
     "database: FATAL:  wrong password"},
    {"FATAL:  28000: no pg_hba.conf entry\n", false, ERROR_PERMISSION, "database: FATAL:  no pg_hba.conf entry"},
    {"FATAL:  08P01: password authentication failed\n", false, ERROR_PERMISSION,
     "database: FATAL:  password authentication failed"},
    {"FATAL:  08P01: SASL authentication failed\n", false, ERROR_PERMISSION,
     "database: FATAL:  SASL authentication failed"},
    {"FATAL:  08P01: server login failed: wrong password type\n", false, ERROR_PERMISSION,
     "database: FATAL:  server login failed: wrong password type"},
    {"FATAL:  08P01: no such database\n", false, ERROR_UNREACHABLE, "database: FATAL:  no such database"},
    {"FATAL:  08P01: pgbouncer cannot connect to server\n", false, ERROR_UNREACHABLE,
     "database: FATAL:  pgbouncer cannot connect to server"},
    {"FATAL:  08P01: server login has been failing, try again later (server_login_retry)\n", false, ERROR_UNREACHABLE,
     "database: FATAL:  server login has been failing, try again later (server_login_retry)"},
    {"FATAL:  08006: no password of ours\n", false, ERROR_UNREACHABLE, "database: FATAL:  no password of ours"},
    {"FATAL:  57P03: starting up\n", true, ERROR_UNREACHABLE, "database: FATAL:  starting up"},
    {"FATAL:  NOCODE: as it is\n", false, ERROR_UNREACHABLE, "database: FATAL:  NOCODE: as it is"},
    {"FATAL:  28P01 as it is\n", false, ERROR_UNREACHABLE, "database: FATAL:  28P01 as it is"},
};

START_TEST(connection_that_cannot_be_made_is_one_line)
{
    status = CONNECTION_BAD;
    said = refusals[_i].said;
    password_missing = refusals[_i].password;
    const char *text = refusal(refusals[_i].kind);
    ck_assert_str_eq(text, refusals[_i].text);
    ck_assert_ptr_null(strchr(text, '\n'));
    ck_assert_ptr_null(strstr(text, "hunter2"));
}
END_TEST

START_TEST(library_without_memory_is_an_error_that_passes)
{
    without_memory = true;
    ck_assert_str_eq(refusal(ERROR_RESOURCE), "database: out of memory");
}
END_TEST

START_TEST(name_whose_lookup_cannot_be_waited_for_is_not_connected_to)
{
    struct error err;
    resolver_begin();
    cannot_wait = true;
    ck_assert_ptr_null(command_connect("host=hang.test dbname=x sslmode=disable", "test", &err));
    cannot_wait = false;
    resolver_release();
    resolver_wait_for_calls_to_end(1, 0);
    ck_assert_int_eq(err.kind, ERROR_RESOURCE);
    ck_assert_str_eq(err.text, "database: poll: out of memory");
}
END_TEST

static const struct {
    int version;
    const char *text; /* NULL: it serves */
} servers[] = {
    {90624, "database: the server is PostgreSQL 9, and pgcourier needs 14 or later"},
    {130018, "database: the server is PostgreSQL 13, and pgcourier needs 14 or later"},
    {140000, NULL},
    {180001, NULL},
    {0, NULL}, /* it says none */
};

START_TEST(server_that_is_too_old_is_refused)
{
    version = servers[_i].version;
    if (servers[_i].text)
        ck_assert_str_eq(refusal(ERROR_CONFIG), servers[_i].text);
    else
        connects();
}
END_TEST

static const char *const questions[] = {
    "begin", "commit", sql_session_encoding, sql_session_hello, sql_session_command, sql_session_path};

START_TEST(session_that_does_not_answer_is_given_up)
{
    unanswered = questions[_i];
    ck_assert_int_eq(strncmp(refusal(ERROR_UNREACHABLE), "database: no answer", 19), 0);
}
END_TEST

static const struct {
    const char *has, *asked;
} encodings[] = {{"UTF8", "UTF8"}, {"LATIN1", "UTF8"}, {"SQL_ASCII", "SQL_ASCII"}, {NULL, "UTF8"}};

START_TEST(bytes_of_a_database_without_an_encoding_are_taken_as_they_are)
{
    encoding = encodings[_i].has;
    connects();
    ck_assert_str_eq(asked_encoding, encodings[_i].asked);
}
END_TEST

START_TEST(path_is_set_for_a_session_of_our_own_and_for_each_transaction_of_one_that_is_shared)
{
    connects();
    ck_assert_str_eq(asked_path_for, "false");
    ck_assert_int_eq(shares, 0);
    asked_path_for[0] = '\0';
    backend = "8";
    connects();
    ck_assert_str_eq(asked_path_for, "");
    ck_assert_int_eq(shares, 1);
}
END_TEST

START_TEST(isolation_level_of_a_session_that_is_shared_has_to_be_the_usual_one)
{
    isolation = "serializable";
    connects();
    backend = "8";
    const char *text = refusal(ERROR_CONFIG);
    ck_assert_ptr_nonnull(strstr(text, "the default isolation level is serializable, and behind a pooler"));
    ck_assert_ptr_nonnull(strstr(text, "set default_transaction_isolation = 'read committed'"));
    isolation = "read committed";
    connects();
}
END_TEST

START_TEST(session_that_is_shared_gets_no_timeouts_of_ours)
{
    backend = "8";
    unanswered = sql_session_command;
    connects();
}
END_TEST

START_TEST(time_to_connect_is_the_environments_where_it_says_one)
{
    connects();
    ck_assert_str_eq(timeout, "10");
    setenv("PGCONNECT_TIMEOUT", "3", 1);
    connects();
    unsetenv("PGCONNECT_TIMEOUT");
    ck_assert_str_eq(timeout, "");
}
END_TEST

#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

int main(void)
{
    Suite *suite = suite_create("command");
    TCase *tcase = tcase_create("command");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_loop_test(tcase, exit_code_follows_the_kind_of_error, 0, COUNT(codes));
    tcase_add_test(tcase, database_that_may_be_talked_to_in_plain_text_without_its_being_wanted_is_refused);
    tcase_add_loop_test(tcase, connection_that_cannot_be_made_is_one_line, 0, COUNT(refusals));
    tcase_add_test(tcase, name_whose_lookup_cannot_be_waited_for_is_not_connected_to);
    tcase_add_test(tcase, library_without_memory_is_an_error_that_passes);
    tcase_add_loop_test(tcase, server_that_is_too_old_is_refused, 0, COUNT(servers));
    tcase_add_loop_test(tcase, session_that_does_not_answer_is_given_up, 0, COUNT(questions));
    tcase_add_loop_test(tcase, bytes_of_a_database_without_an_encoding_are_taken_as_they_are, 0, COUNT(encodings));
    tcase_add_test(tcase, path_is_set_for_a_session_of_our_own_and_for_each_transaction_of_one_that_is_shared);
    tcase_add_test(tcase, isolation_level_of_a_session_that_is_shared_has_to_be_the_usual_one);
    tcase_add_test(tcase, session_that_is_shared_gets_no_timeouts_of_ours);
    tcase_add_test(tcase, time_to_connect_is_the_environments_where_it_says_one);
    return run_suite(suite);
}
