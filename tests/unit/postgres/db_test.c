/* How a connection comes up, is refused, given up and lost, and what each step says that cannot be sent. */
#include "tests/unit/stage/played_server.h"

#include "relay/base/fault_point.h"
#include "relay/postgres/statement_cache.h"
#include "tests/support/run_suite.h"

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

/* A round of `count` statements that nobody has sent before. */
static void run_new_statements(const char *const *texts, int count)
{
    const char *const value[] = {"1"};
    for (int i = 0; i < count; i++)
        ck_assert(db_send_sql(db, texts[i], &err));
    ck_assert(db_end_round(db, &err));
    ck_assert(is_spoken_to());
    for (int i = 0; i < count; i++) {
        say('1', "", 0);
        say_row(1, value);
    }
    say_ready();
    for (int i = 0; i < count; i++) {
        ck_assert_int_eq(next_event(), DB_RESULT);
        ck_assert_int_eq(PQresultStatus(result.res), PGRES_TUPLES_OK);
        PQclear(result.res);
    }
    ck_assert_int_eq(next_event(), DB_ROUND_END);
}

START_TEST(statement_that_finds_no_room_is_sent_unprepared)
{
    static const char texts[STATEMENT_CACHE_MAX + 1][9] = {"select 1"};
    const char *sql[STATEMENT_CACHE_MAX + 1];
    for (int i = 0; i <= STATEMENT_CACHE_MAX; i++)
        sql[i] = texts[i];
    come_up();
    run_new_statements(sql, STATEMENT_CACHE_MAX / 2);
    run_new_statements(sql + STATEMENT_CACHE_MAX / 2, STATEMENT_CACHE_MAX / 2);
    ck_assert_int_eq(prepares, STATEMENT_CACHE_MAX);
    run_new_statements(sql + STATEMENT_CACHE_MAX, 1);
    ck_assert_int_eq(prepares, STATEMENT_CACHE_MAX);
}
END_TEST

static const char *const flushes[] = {"", "PQflush"};

START_TEST(rest_of_a_round_goes_when_the_socket_takes_it)
{
    come_up();
    ck_assert(db_send_sql(db, "select 1", &err));
    full = 2; /* when the round ends, and when the loop asks what to wait for */
    ck_assert(db_end_round(db, &err));
    broken = flushes[_i];
    if (broken[0])
        assert_down("database: ");
    else
        ck_assert(is_spoken_to());
    ck_assert_int_eq(full, 0);
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

/* libpq goes on to the next one only when one has failed. */
START_TEST(next_server_is_called_when_one_never_answers)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    char both[160];
    int deaf = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(bind(deaf, (struct sockaddr *)&address, size) == 0 && listen(deaf, 4) == 0);
    ck_assert_int_eq(getsockname(deaf, (struct sockaddr *)&address, &size), 0);
    snprintf(both, sizeof both, "host=127.0.0.1,%s", options.conninfo + strlen("host="));
    snprintf(strstr(both, "port="), 80, "port=%u,%s", ntohs(address.sin_port), strstr(options.conninfo, "port=") + 5);
    db_free(db);
    options.conninfo = both;
    db = db_new(&options);
    ck_assert_int_eq(turn(), DB_NOTHING);
    now += 10 * SECOND_US;
    assert_down("no answer within 10 s");
    now += 2 * SECOND_US;
    ck_assert(is_spoken_to());
    close(deaf);
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

static const char *const severities[] = {"FATAL", "PANIC"};

START_TEST(last_words_of_a_server_are_the_end_and_the_reason)
{
    come_up();
    say_complaint(severities[_i], "terminating connection");
    assert_down("terminating connection");
}
END_TEST

START_TEST(last_words_are_heard_of_a_connection_that_is_closed_already)
{
    come_up();
    say_complaint(severities[_i], "terminating connection");
    close(peer);
    peer = -1;
    assert_down("terminating connection");
}
END_TEST

/* Its locks are free from then on, and its connection may be closed much later. */
START_TEST(last_words_in_a_round_are_the_end_before_the_connection_is_closed)
{
    come_up();
    ck_assert(db_send_sql(db, "select 1", &err) && db_end_round(db, &err));
    ck_assert(is_spoken_to());
    say_complaint(severities[_i], "terminating connection");
    enum db_event event;
    while ((event = next_event()) == DB_RESULT)
        PQclear(result.res);
    ck_assert_int_eq(event, DB_DOWN);
    ck_assert_ptr_nonnull(strstr(err.text, "terminating connection"));
}
END_TEST

START_TEST(what_comes_after_poll_is_seen_by_who_looks_again)
{
    come_up();
    enum db_event event = db_progress(db, NULL, now, &result, &err);
    ck_assert_int_eq(event, DB_NOTHING);
    say_complaint("FATAL", "terminating connection");
    for (int i = 0; i < TURNS_MAX && event == DB_NOTHING; i++, poll(NULL, 0, 10))
        event = db_progress(db, NULL, now, &result, &err);
    ck_assert_int_eq(event, DB_DOWN);
    ck_assert_ptr_nonnull(strstr(err.text, "terminating connection"));
}
END_TEST

/* One that is shut down at once only warns. libpq's first read takes the warning, and none but the next sees the end;
 * who looks once more before he delivers would still believe that he holds his keys. */
START_TEST(warning_and_the_end_behind_it_are_seen_in_one_look)
{
    static const char warning[] = "SWARNING\0VWARNING\0C57P02\0Mterminating connection because of crash\0";
    come_up();
    say('N', warning, sizeof warning);
    hang_up();
    ck_assert_int_eq(_i == 0 ? turn() : db_progress(db, NULL, now, &result, &err), DB_DOWN);
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

static const struct {
    const char *body;
    size_t size;
} notices[] = {{"Mtake care\0", 12}, {"VFATAL\0", 8}, {"VWARNING\0Mtake care\0", 21}};

START_TEST(notice_that_is_not_an_end_is_passed_over)
{
    come_up();
    say('N', notices[_i].body, notices[_i].size);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(turn(), DB_NOTHING);
    ck_assert(db_is_idle(db));
    close(peer);
    peer = -1;
    ck_assert_int_eq(next_event(), DB_DOWN);
    ck_assert_ptr_null(strstr(err.text, "take care"));
}
END_TEST

START_TEST(server_that_talks_nonsense_to_an_idle_connection_is_lost)
{
    come_up();
    ck_assert_int_eq(send(peer, "?\0\0\0\0", 5, MSG_NOSIGNAL), 5);
    assert_down("database: ");
}
END_TEST

START_TEST(failure_without_a_word_has_a_rule_too)
{
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_FATAL_ERROR);
    ck_assert_ptr_eq(db_result_rule(res, &err), sqlstate_rule(NULL));
    ck_assert_ptr_nonnull(strstr(err.text, "no message from the server (SQLSTATE none: "));
    PQclear(res);
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

static const char *const beginnings[] = {"PQsetnonblocking", "PQenterPipelineMode"};

START_TEST(pipeline_that_does_not_begin_is_a_lost_connection)
{
    ck_assert(is_spoken_to());
    say_welcome();
    broken = beginnings[_i];
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

static const char *const settings[] = {"PQsendQueryParams statement_timeout", "PQflush"};

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
    fault_point_start();
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
    fault_point_start();
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
    tcase_add_test(tcase, statement_that_finds_no_room_is_sent_unprepared);
    tcase_add_loop_test(tcase, rest_of_a_round_goes_when_the_socket_takes_it, 0, COUNT(flushes));
    tcase_add_test(tcase, connection_that_is_given_up_is_down_at_the_next_turn);
    tcase_add_test(tcase, server_that_never_answers_is_given_up_after_ten_seconds);
    tcase_add_test(tcase, next_server_is_called_when_one_never_answers);
    tcase_add_test(tcase, server_that_falls_silent_after_the_login_is_given_up);
    tcase_add_test(tcase, server_that_falls_silent_in_a_round_is_given_up_when_its_statements_must_have_ended);
    tcase_add_test(tcase, server_that_hangs_up_at_the_welcome_is_unreachable);
    tcase_add_test(tcase, setting_that_is_refused_is_the_reason);
    tcase_add_test(tcase, server_in_recovery_is_waited_for);
    tcase_add_loop_test(tcase, last_words_of_a_server_are_the_end_and_the_reason, 0, COUNT(severities));
    tcase_add_loop_test(tcase, last_words_are_heard_of_a_connection_that_is_closed_already, 0, COUNT(severities));
    tcase_add_loop_test(tcase, last_words_in_a_round_are_the_end_before_the_connection_is_closed, 0, COUNT(severities));
    tcase_add_test(tcase, what_comes_after_poll_is_seen_by_who_looks_again);
    tcase_add_loop_test(tcase, warning_and_the_end_behind_it_are_seen_in_one_look, 0, 2);
    tcase_add_loop_test(tcase, notice_that_is_not_an_end_is_passed_over, 0, COUNT(notices));
    tcase_add_test(tcase, server_that_talks_nonsense_to_an_idle_connection_is_lost);
    tcase_add_test(tcase, failure_without_a_word_has_a_rule_too);
    tcase_add_test(tcase, server_that_goes_away_in_a_round_is_lost);
    tcase_add_test(tcase, server_that_talks_nonsense_in_a_round_is_lost);
    tcase_add_loop_test(tcase, pipeline_that_does_not_begin_is_a_lost_connection, 0, COUNT(beginnings));
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
