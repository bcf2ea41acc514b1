/* The connection to a server that is played here: it says what a test lets it say, and libpq fails where one wants it.
 */
#include "relay/db.h"

#include "relay/config.h"
#include "tests/support/run_suite.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKEND 4711
#define TURNS_MAX 2000 /* of up to 10 ms */

static struct db *db;
static struct pollset *ps;
static struct error err;
static struct db_result result;
static int listening = -1, peer = -1;
static instant_us now;

/* ---- libpq, where it cannot be made to fail from outside ---- */

static const char *broken = ""; /* the function that fails */

int __real_PQpipelineSync(PGconn *conn);
int __real_PQenterPipelineMode(PGconn *conn);
int __real_PQsendPrepare(PGconn *conn, const char *name, const char *sql, int count, const Oid *types);
int __real_PQsendQueryParams(PGconn *conn, const char *sql, int count, const Oid *types, const char *const *values,
                             const int *lengths, const int *formats, int format);
int __real_PQflush(PGconn *conn);
int __wrap_PQpipelineSync(PGconn *conn);
int __wrap_PQenterPipelineMode(PGconn *conn);
int __wrap_PQsendPrepare(PGconn *conn, const char *name, const char *sql, int count, const Oid *types);
int __wrap_PQsendQueryParams(PGconn *conn, const char *sql, int count, const Oid *types, const char *const *values,
                             const int *lengths, const int *formats, int format);
int __wrap_PQflush(PGconn *conn);

static bool is_broken(const char *name)
{
    return strcmp(broken, name) == 0;
}

int __wrap_PQpipelineSync(PGconn *conn)
{
    return is_broken("PQpipelineSync") ? 0 : __real_PQpipelineSync(conn);
}

int __wrap_PQenterPipelineMode(PGconn *conn)
{
    return is_broken("PQenterPipelineMode") ? 0 : __real_PQenterPipelineMode(conn);
}

int __wrap_PQsendPrepare(PGconn *conn, const char *name, const char *sql, int count, const Oid *types)
{
    return is_broken("PQsendPrepare") ? 0 : __real_PQsendPrepare(conn, name, sql, count, types);
}

/* NOLINTNEXTLINE(readability-function-size): the signature is libpq's. */
int __wrap_PQsendQueryParams(PGconn *conn, const char *sql, int count, const Oid *types, const char *const *values,
                             const int *lengths, const int *formats, int format)
{
    if (strncmp(broken, "PQsendQueryParams ", 18) == 0 && strstr(sql, broken + 18))
        return 0;
    return __real_PQsendQueryParams(conn, sql, count, types, values, lengths, formats, format);
}

int __wrap_PQflush(PGconn *conn)
{
    return is_broken("PQflush") ? -1 : __real_PQflush(conn);
}

/* ---- the server ---- */

static void say(char type, const void *body, size_t size)
{
    char message[256];
    uint32_t length = htonl((uint32_t)size + 4);
    ck_assert_uint_lt(size, sizeof message - 5);
    message[0] = type;
    memcpy(message + 1, &length, 4);
    memcpy(message + 5, body, size);
    ck_assert_int_eq(send(peer, message, size + 5, MSG_NOSIGNAL), (ssize_t)size + 5);
}

static void say_ready(void)
{
    say('Z', "I", 1);
}

static void say_complaint(const char *severity, const char *text)
{
    char body[200];
    int size = snprintf(body, sizeof body, "S%s%cV%s%cC42501%cM%s%c%c", severity, 0, severity, 0, 0, text, 0, 0);
    say('E', body, (size_t)size);
}

/* A row of texts: what comes before it, itself, and what follows it. */
static void say_row(int columns, const char *const *values)
{
    static const char column[] = "c\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0";
    char heads[128], row[128];
    uint16_t count = htons((uint16_t)columns);
    memcpy(heads, &count, 2);
    memcpy(row, &count, 2);
    size_t heads_size = 2, row_size = 2;
    for (int i = 0; i < columns; i++) {
        uint32_t length = htonl((uint32_t)strlen(values[i]));
        memcpy(heads + heads_size, column, sizeof column);
        heads_size += sizeof column;
        memcpy(row + row_size, &length, 4);
        memcpy(row + row_size + 4, values[i], strlen(values[i]));
        row_size += 4 + strlen(values[i]);
    }
    say('2', "", 0);
    say('T', heads, heads_size);
    say('D', row, row_size);
    say('C', "SELECT 1", 9);
}

static void say_welcome(void)
{
    const uint32_t key[] = {htonl(BACKEND), htonl(1)};
    say('R', "\0\0\0\0", 4);
    say('K', key, sizeof key);
    say_ready();
}

static void say_hello(const char *recovery)
{
    const char *const values[] = {"4711", recovery, "UTF8"};
    say('1', "", 0);
    say_row(3, values);
    say_ready();
}

static void say_settings(void)
{
    const char *const value[] = {""};
    for (int i = 0; i < 2; i++) {
        say('1', "", 0);
        say_row(1, value);
    }
    say_ready();
}

/* ---- the client ---- */

static enum db_event turn(void)
{
    pollset_clear(ps);
    db_prepare(db, ps);
    pollset_deadline(ps, now + 10 * MS_US);
    ck_assert_msg(pollset_wait(ps, now, &err), "%s", err.text);
    return db_progress(db, ps, now, &result, &err);
}

static enum db_event next_event(void)
{
    enum db_event event = DB_NOTHING;
    for (int i = 0; i < TURNS_MAX && event == DB_NOTHING; i++)
        event = turn();
    return event;
}

/* Turns until the server has been sent something since the last time; false: the client has given up. */
static bool is_spoken_to(void)
{
    char bytes[4096];
    for (int i = 0; i < TURNS_MAX; i++) {
        if (turn() == DB_DOWN)
            return false;
        if (peer < 0)
            peer = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (peer >= 0 && read(peer, bytes, sizeof bytes) > 0)
            return true;
    }
    ck_abort_msg("nothing was sent");
    return false;
}

static void assert_down(const char *text)
{
    ck_assert_int_eq(next_event(), DB_DOWN);
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ck_assert(!db_is_idle(db));
}

static void set_up(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    static char conninfo[128];
    listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listening, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listening, 4), 0);
    ck_assert_int_eq(getsockname(listening, (struct sockaddr *)&address, &size), 0);
    snprintf(conninfo, sizeof conninfo, "host=127.0.0.1 port=%u user=u dbname=d sslmode=disable gssencmode=disable",
             ntohs(address.sin_port));
    const struct db_options options = {.conninfo = conninfo,
                                       .application_name = "test",
                                       .prepared = PREPARED_AUTO,
                                       .statement_timeout_us = SECOND_US,
                                       .read_write = true,
                                       .seed = 1};
    db = db_new(&options);
    ps = pollset_new();
}

static void tear_down(void)
{
    db_free(db);
    pollset_free(ps);
    close(peer);
    close(listening);
}

static void come_up(void)
{
    ck_assert(is_spoken_to());
    say_welcome();
    ck_assert(is_spoken_to());
    say_hello("false");
    ck_assert(is_spoken_to());
    say_settings();
    ck_assert_int_eq(next_event(), DB_UP);
    ck_assert(db_is_idle(db) && !db_is_shared(db));
}

/* ---- the tests ---- */

START_TEST(connection_comes_up_and_carries_a_round)
{
    const char *const value[] = {"1"};
    come_up();
    ck_assert(db_send_sql(db, "select 1", &err) && db_end_round(db, &err));
    ck_assert(is_spoken_to());
    say('1', "", 0);
    say_row(1, value);
    say_ready();
    ck_assert_int_eq(next_event(), DB_RESULT);
    ck_assert_int_eq(PQresultStatus(result.res), PGRES_TUPLES_OK);
    ck_assert_uint_eq(result.index, 0);
    PQclear(result.res);
    ck_assert_int_eq(next_event(), DB_ROUND_END);
    ck_assert(db_is_idle(db));
}
END_TEST

START_TEST(connection_that_is_given_up_is_down_at_the_next_turn)
{
    come_up();
    db_drop(db, false, "not to be trusted");
    ck_assert(!db_is_idle(db));
    assert_down("not to be trusted");
    db_drop(db, true, "again"); /* there is none */
    ck_assert_int_eq(turn(), DB_NOTHING);
}
END_TEST

START_TEST(server_that_never_answers_is_given_up_after_ten_seconds)
{
    ck_assert(is_spoken_to());
    now += 10 * SECOND_US;
    assert_down("no answer within 10 s");
}
END_TEST

START_TEST(server_that_falls_silent_after_the_login_is_given_up)
{
    ck_assert(is_spoken_to());
    say_welcome();
    ck_assert(is_spoken_to());
    now += 10 * SECOND_US;
    ck_assert_int_eq(turn(), DB_NOTHING);
    now += 3 * SECOND_US;
    assert_down("has not answered in time");
}
END_TEST

START_TEST(server_that_falls_silent_in_a_round_is_given_up_when_its_statements_must_have_ended)
{
    come_up();
    now += 3600 * SECOND_US; /* what is idle is asked nothing */
    ck_assert_int_eq(turn(), DB_NOTHING);
    ck_assert(db_send_sql(db, "select 1", &err) && db_send_sql(db, "select 2", &err) && db_end_round(db, &err));
    ck_assert(is_spoken_to());
    now += 11 * SECOND_US;
    ck_assert_int_eq(turn(), DB_NOTHING);
    now += 5 * SECOND_US;
    assert_down("has not answered in time");
}
END_TEST

START_TEST(pooler_may_take_its_time)
{
    const char *const values[] = {"1", "false", "UTF8"}; /* another backend than the welcome's */
    ck_assert(is_spoken_to());
    say_welcome();
    ck_assert(is_spoken_to());
    say('1', "", 0);
    say_row(3, values);
    say_ready();
    ck_assert_int_eq(next_event(), DB_UP);
    ck_assert(db_is_shared(db));
    ck_assert(db_send_sql(db, "select 1", &err) && db_end_round(db, &err));
    now += 3600 * SECOND_US;
    ck_assert_int_eq(turn(), DB_NOTHING);
}
END_TEST

START_TEST(server_that_hangs_up_at_the_welcome_is_unreachable)
{
    ck_assert(is_spoken_to());
    close(peer);
    peer = -1;
    assert_down("database: ");
}
END_TEST

START_TEST(setting_that_is_refused_is_the_reason)
{
    ck_assert(is_spoken_to());
    say_welcome();
    ck_assert(is_spoken_to());
    say_complaint("ERROR", "not for you");
    say_ready();
    assert_down("not for you");
}
END_TEST

START_TEST(server_in_recovery_is_waited_for)
{
    ck_assert(is_spoken_to());
    say_welcome();
    ck_assert(is_spoken_to());
    say_hello("true");
    assert_down("the server is in recovery or read-only");
}
END_TEST

START_TEST(last_words_of_a_server_are_the_reason)
{
    come_up();
    say_complaint("FATAL", "terminating connection");
    for (int i = 0; i < 5; i++)
        ck_assert_int_eq(turn(), DB_NOTHING);
    close(peer);
    peer = -1;
    assert_down("terminating connection");
}
END_TEST

START_TEST(server_that_goes_away_in_a_round_is_lost)
{
    come_up();
    ck_assert(db_send_sql(db, "select 1", &err) && db_end_round(db, &err));
    ck_assert(is_spoken_to());
    close(peer);
    peer = -1;
    assert_down("database: ");
}
END_TEST

START_TEST(server_that_talks_nonsense_in_a_round_is_lost)
{
    come_up();
    ck_assert(db_send_sql(db, "select 1", &err) && db_end_round(db, &err));
    ck_assert(is_spoken_to());
    ck_assert_int_eq(send(peer, "?\0\0\0\0", 5, MSG_NOSIGNAL), 5);
    enum db_event event;
    while ((event = next_event()) == DB_RESULT)
        PQclear(result.res);
    ck_assert_int_eq(event, DB_DOWN);
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

START_TEST(pipeline_that_does_not_begin_is_a_lost_connection)
{
    ck_assert(is_spoken_to());
    say_welcome();
    broken = "PQenterPipelineMode";
    assert_down("database: ");
}
END_TEST

static const char *const greetings[] = {"PQsendQueryParams pg_backend_pid", "PQpipelineSync"};

START_TEST(hello_that_cannot_be_sent_is_a_lost_connection)
{
    ck_assert(is_spoken_to());
    say_welcome();
    broken = greetings[_i];
    assert_down("database: ");
}
END_TEST

static const char *const settings[] = {"PQsendQueryParams statement_timeout", "PQsendQueryParams search_path",
                                       "PQflush"};

START_TEST(settings_that_cannot_be_sent_are_a_lost_connection)
{
    ck_assert(is_spoken_to());
    say_welcome();
    ck_assert(is_spoken_to());
    say_hello("false");
    broken = settings[_i];
    assert_down("database: ");
}
END_TEST

START_TEST(statement_that_cannot_be_sent_is_an_error)
{
    come_up();
    broken = "PQsendPrepare";
    ck_assert(!db_send_sql(db, "select 1", &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

static const char *const ends[] = {"PQpipelineSync", "PQflush"};

START_TEST(round_that_cannot_be_ended_is_an_error)
{
    come_up();
    ck_assert(db_send_sql(db, "select 1", &err));
    broken = ends[_i];
    ck_assert(!db_end_round(db, &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

/* ---- fault points ---- */

#ifdef PGCOURIER_FAULT_POINTS

static const char *const points[] = {"db.connect:1:error", "db.connected:1:error", "db.read:1:error"};

START_TEST(connection_that_is_made_to_fail_goes_down)
{
    setenv("PGCOURIER_FAULT", points[_i], 1);
    if (_i > 0 && is_spoken_to()) {
        say_welcome();
        if (_i > 1 && is_spoken_to())
            say_hello("false");
    }
    assert_down("database: ");
}
END_TEST

START_TEST(statement_and_round_that_are_made_to_fail_are_errors)
{
    setenv("PGCOURIER_FAULT", "db.send:1:error,db.round:1:error", 1);
    come_up();
    ck_assert(!db_send_sql(db, "select 1", &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
    ck_assert(db_send_sql(db, "select 1", &err));
    ck_assert(!db_end_round(db, &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

#endif

#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

int main(void)
{
    Suite *suite = suite_create("db");
    TCase *tcase = tcase_create("db");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, connection_comes_up_and_carries_a_round);
    tcase_add_test(tcase, connection_that_is_given_up_is_down_at_the_next_turn);
    tcase_add_test(tcase, server_that_never_answers_is_given_up_after_ten_seconds);
    tcase_add_test(tcase, server_that_falls_silent_after_the_login_is_given_up);
    tcase_add_test(tcase, server_that_falls_silent_in_a_round_is_given_up_when_its_statements_must_have_ended);
    tcase_add_test(tcase, pooler_may_take_its_time);
    tcase_add_test(tcase, server_that_hangs_up_at_the_welcome_is_unreachable);
    tcase_add_test(tcase, setting_that_is_refused_is_the_reason);
    tcase_add_test(tcase, server_in_recovery_is_waited_for);
    tcase_add_test(tcase, last_words_of_a_server_are_the_reason);
    tcase_add_test(tcase, server_that_goes_away_in_a_round_is_lost);
    tcase_add_test(tcase, server_that_talks_nonsense_in_a_round_is_lost);
    tcase_add_test(tcase, pipeline_that_does_not_begin_is_a_lost_connection);
    tcase_add_loop_test(tcase, hello_that_cannot_be_sent_is_a_lost_connection, 0, COUNT(greetings));
    tcase_add_loop_test(tcase, settings_that_cannot_be_sent_are_a_lost_connection, 0, COUNT(settings));
    tcase_add_test(tcase, statement_that_cannot_be_sent_is_an_error);
    tcase_add_loop_test(tcase, round_that_cannot_be_ended_is_an_error, 0, COUNT(ends));
#ifdef PGCOURIER_FAULT_POINTS
    tcase_add_loop_test(tcase, connection_that_is_made_to_fail_goes_down, 0, COUNT(points));
    tcase_add_test(tcase, statement_and_round_that_are_made_to_fail_are_errors);
#endif
    return run_suite_forked(suite);
}
