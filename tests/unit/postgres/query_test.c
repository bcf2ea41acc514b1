/* A database that does not answer: libpq and poll(2) are played here. */
#include "relay/postgres/query.h"

#include "relay/base/clock.h"
#include "tests/support/run_suite.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

static int poll_result, poll_errno, sent, consumed;
static int polls; /* before there is something to read */
static instant_us clock_us, step_us;
static instant_us stop_after_us;   /* the first wait takes so long */
static ExecStatusType statuses[4]; /* of the results that come, and then the end */
static size_t status_count, status_next;
static const char *error_fields[3]; /* SQLSTATE, detail, hint */
static const char *message;
static bool mute; /* libpq */
static bool told; /* before anything is asked */

int __wrap_PQsendQueryParams(void);
int __wrap_PQsendQuery(void);
int __wrap_PQisBusy(void);
int __wrap_PQconsumeInput(void);
PGresult *__wrap_PQgetResult(void);
PGresult *__wrap_PQexec(void);
char *__wrap_PQresultErrorField(const PGresult *result, int field);
char *__wrap_PQerrorMessage(void);
instant_us __wrap_clock_now(void);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);

int __wrap_PQsendQueryParams(void)
{
    return sent;
}

int __wrap_PQsendQuery(void)
{
    return sent;
}

int __wrap_PQisBusy(void)
{
    return polls > 0;
}

int __wrap_PQconsumeInput(void)
{
    return consumed;
}

PGresult *__wrap_PQgetResult(void)
{
    if (status_next == status_count)
        return NULL;
    PGresult *result = PQmakeEmptyPGresult(NULL, statuses[status_next++]);
    if (status_next == status_count)
        polls = consumed == 0; /* breaks behind its last words */
    return result;
}

PGresult *__wrap_PQexec(void)
{
    return PQmakeEmptyPGresult(NULL, statuses[0]);
}

char *__wrap_PQresultErrorField(const PGresult *result, int field)
{
    const char *text = !result                            ? NULL
                       : field == PG_DIAG_SQLSTATE        ? error_fields[0]
                       : field == PG_DIAG_MESSAGE_PRIMARY ? message
                       : field == PG_DIAG_MESSAGE_DETAIL  ? error_fields[1]
                                                          : error_fields[2];
    return (char *)(uintptr_t)text;
}

char *__wrap_PQerrorMessage(void)
{
    static char text[] = "nothing is there\n\n", nothing[] = "";
    return mute ? nothing : text;
}

instant_us __wrap_clock_now(void)
{
    return clock_us += step_us;
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    if (timeout_ms == 0)
        return told;
    polls -= poll_result != 0;
    clock_us += stop_after_us;
    stop_after_us = 0;
    for (nfds_t i = 0; i < count; i++)
        fds[i].revents = POLLIN;
    errno = poll_errno;
    return poll_result;
}

static void set_up(void)
{
    poll_result = poll_errno = 0;
    sent = consumed = polls = 1;
    clock_us = step_us = stop_after_us = 0;
    status_count = status_next = 0;
    message = NULL;
    mute = false;
    told = false;
    memset(error_fields, 0, sizeof error_fields);
}

static void assert_fails(enum error_kind kind, const char *text)
{
    struct error err;
    int polls_then = polls;
    ck_assert_ptr_null(query_in_time(NULL, "asking", "select 1", 0, NULL, &err));
    ck_assert_int_eq(err.kind, kind);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    status_next = 0;
    polls = polls_then;
    ck_assert(!query_script_in_time(NULL, "asking", "select 1", &err));
    ck_assert_int_eq(err.kind, kind);
}

/* What is said of a script that fails. */
static const char *failure(void)
{
    static struct error err;
    statuses[0] = PGRES_FATAL_ERROR;
    ck_assert(!query_script(NULL, "asking", "select 1", &err));
    return err.text;
}

START_TEST(answer_that_does_not_come_in_time_is_a_timeout)
{
    assert_fails(ERROR_TIMEOUT, "asking: the database gave no answer within ");
}
END_TEST

START_TEST(nobody_waits_when_the_time_is_over)
{
    poll_result = -1;
    poll_errno = EINVAL; /* it would say so */
    step_us = QUERY_ANSWER_S * SECOND_US;
    assert_fails(ERROR_TIMEOUT, "asking: the database gave no answer within ");
}
END_TEST

START_TEST(wait_that_fails_is_an_error)
{
    poll_result = -1;
    poll_errno = EINVAL;
    assert_fails(ERROR_RESOURCE, "asking: poll: Invalid argument");
}
END_TEST

START_TEST(wait_that_a_signal_ends_is_begun_again)
{
    struct error err;
    polls = 2;
    poll_result = -1;
    poll_errno = EINTR;
    status_count = 1;
    statuses[0] = PGRES_TUPLES_OK;
    PGresult *result = query_in_time(NULL, "asking", "select 1", 0, NULL, &err);
    ck_assert_ptr_nonnull(result);
    ck_assert_int_eq(polls, 0);
    PQclear(result);
}
END_TEST

static const struct asker asker = {.what = "asking", .stop_fd = 3};

static const struct {
    int poll_result, poll_errno, consumed;
    enum error_kind kind;
} ends[] = {{-1, EINVAL, 1, ERROR_RESOURCE}, {1, 0, 0, ERROR_UNREACHABLE}};

START_TEST(statement_that_cannot_be_waited_for_has_no_result)
{
    struct error err;
    poll_result = ends[_i].poll_result;
    poll_errno = ends[_i].poll_errno;
    consumed = ends[_i].consumed;
    ck_assert_ptr_null(query_or_cancel(&asker, "select 1", 0, NULL, &err));
    ck_assert_int_eq(err.kind, ends[_i].kind);
    sent = 0;
    ck_assert(!query_script_or_cancel(&asker, "select 1", &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

START_TEST(who_is_told_to_stop_asks_no_more)
{
    struct error err;
    told = true;
    ck_assert_ptr_null(query_or_cancel(&asker, "select 1", 0, NULL, &err));
    ck_assert_int_eq(err.kind, ERROR_CONFLICT);
    ck_assert_str_eq(err.text, "asking: stopped");
    ck_assert(!query_script_or_cancel(&asker, "select 1", &err));
    ck_assert_str_eq(err.text, "asking: stopped");
    ck_assert_int_eq(polls, 1);
}
END_TEST

START_TEST(database_that_does_not_answer_is_waited_for_a_moment_after_the_stop)
{
    struct error err;
    polls = 1000;
    poll_result = 1;
    step_us = SECOND_US / 4;
    ck_assert_ptr_null(query_or_cancel(&asker, "select 1", 0, NULL, &err));
    ck_assert_int_eq(err.kind, ERROR_CONFLICT);
    ck_assert_str_eq(err.text, "asking: stopped, and the database has not answered to that");
    ck_assert_int_le(clock_us, 2 * SECOND_US);
}
END_TEST

START_TEST(statement_that_is_cancelled_was_stopped)
{
    struct error err;
    poll_result = 1;
    status_count = 1;
    statuses[0] = PGRES_FATAL_ERROR;
    error_fields[0] = "57014";
    message = "canceling statement due to user request";
    ck_assert(!query_script_or_cancel(&asker, "select 1", &err));
    ck_assert_int_eq(err.kind, ERROR_CONFLICT);
    ck_assert_str_eq(err.text, "asking: stopped");
    error_fields[0] = "42601"; /* it has failed before */
    message = "syntax error";
    status_next = 0;
    polls = 1;
    ck_assert(!query_script_or_cancel(&asker, "select 1", &err));
    ck_assert_str_eq(err.text, "asking: syntax error");
}
END_TEST

START_TEST(moment_after_the_stop_begins_with_the_stop)
{
    struct error err;
    polls = 3;
    poll_result = 1;
    stop_after_us = 3600 * SECOND_US;
    status_count = 1;
    statuses[0] = PGRES_FATAL_ERROR;
    error_fields[0] = "57014";
    ck_assert(!query_script_or_cancel(&asker, "select 1", &err));
    ck_assert_str_eq(err.text, "asking: stopped");
}
END_TEST

START_TEST(statement_that_is_done_before_it_is_cancelled_is_done)
{
    struct error err;
    poll_result = 1;
    status_count = 1;
    statuses[0] = PGRES_COMMAND_OK;
    ck_assert(query_script_or_cancel(&asker, "commit", &err));
}
END_TEST

START_TEST(limit_of_ones_own_is_kept)
{
    struct error err;
    const struct asker hurried = {.what = "asking", .stop_fd = -1, .limit_us = 5 * SECOND_US};
    step_us = 6 * SECOND_US;
    ck_assert(!query_script_or_cancel(&hurried, "select 1", &err));
    ck_assert_int_eq(err.kind, ERROR_TIMEOUT);
    ck_assert_str_eq(err.text, "asking: the database gave no answer within 5 s");
}
END_TEST

START_TEST(connection_that_breaks_is_unreachable)
{
    poll_result = 1;
    consumed = 0;
    assert_fails(ERROR_UNREACHABLE, "asking: nothing is there");
}
END_TEST

START_TEST(question_that_cannot_be_sent_is_unreachable)
{
    sent = 0;
    assert_fails(ERROR_UNREACHABLE, "asking: nothing is there");
}
END_TEST

static const struct {
    ExecStatusType status;
    enum error_kind kind;
} last_words[] = {{PGRES_TUPLES_OK, ERROR_UNREACHABLE}, {PGRES_FATAL_ERROR, ERROR_PERMISSION}};

START_TEST(server_that_hangs_up_behind_its_answer_has_given_none_but_an_error)
{
    polls = 0;
    poll_result = 1;
    consumed = 0;
    status_count = 1;
    statuses[0] = last_words[_i].status;
    error_fields[0] = "42501";
    assert_fails(last_words[_i].kind, "asking: nothing is there");
}
END_TEST

START_TEST(error_is_told_with_its_detail_and_its_hint)
{
    message = "it is full";
    ck_assert_str_eq(failure(), "asking: it is full");
    error_fields[1] = "3 of 3";
    ck_assert_str_eq(failure(), "asking: it is full; 3 of 3");
    error_fields[2] = "take one out";
    ck_assert_str_eq(failure(), "asking: it is full; 3 of 3; take one out");
    error_fields[1] = NULL;
    ck_assert_str_eq(failure(), "asking: it is full; take one out");
}
END_TEST

START_TEST(library_without_words_is_one_line_all_the_same)
{
    ck_assert_str_eq(failure(), "asking: nothing is there");
    mute = true;
    ck_assert_str_eq(failure(), "asking:");
}
END_TEST

static const struct {
    const char *code, *text, *remedy;
} missing[] = {
    {"3F000", "schema \"outbox\" does not exist", "; run pgcourier migrate"},
    {"42P01", "relation \"outbox.parked\" does not exist", "; run pgcourier migrate"},
    {"42883", "function outbox.publish() does not exist", "; run pgcourier migrate"},
    {"42P01", "relation \"mine\" does not exist", ""},
    {"42501", "permission denied for schema outbox", ""},
    {NULL, "no room for outbox", ""},
};

START_TEST(only_what_migrations_make_is_mended_by_them)
{
    char wanted[200];
    error_fields[0] = missing[_i].code;
    message = missing[_i].text;
    snprintf(wanted, sizeof wanted, "asking: %s%s", message, missing[_i].remedy);
    ck_assert_str_eq(failure(), wanted);
}
END_TEST

START_TEST(what_a_function_of_ours_does_not_find_was_named_by_the_command)
{
    struct error err;
    statuses[0] = PGRES_FATAL_ERROR;
    error_fields[0] = "42704";
    message = "asking: there is no queue \"nowhere\"";
    ck_assert(!query_script(NULL, "asking", "select 1", &err));
    ck_assert_int_eq(err.kind, ERROR_USAGE);
    ck_assert_str_eq(err.text, message);
    message = "type \"nothing\" does not exist";
    ck_assert(!query_script(NULL, "asking", "select 1", &err));
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("query");
    TCase *tcase = tcase_create("query");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, answer_that_does_not_come_in_time_is_a_timeout);
    tcase_add_test(tcase, nobody_waits_when_the_time_is_over);
    tcase_add_test(tcase, wait_that_fails_is_an_error);
    tcase_add_test(tcase, wait_that_a_signal_ends_is_begun_again);
    tcase_add_loop_test(tcase, statement_that_cannot_be_waited_for_has_no_result, 0, 2);
    tcase_add_test(tcase, who_is_told_to_stop_asks_no_more);
    tcase_add_test(tcase, database_that_does_not_answer_is_waited_for_a_moment_after_the_stop);
    tcase_add_test(tcase, statement_that_is_cancelled_was_stopped);
    tcase_add_test(tcase, moment_after_the_stop_begins_with_the_stop);
    tcase_add_test(tcase, statement_that_is_done_before_it_is_cancelled_is_done);
    tcase_add_test(tcase, limit_of_ones_own_is_kept);
    tcase_add_test(tcase, connection_that_breaks_is_unreachable);
    tcase_add_test(tcase, question_that_cannot_be_sent_is_unreachable);
    tcase_add_loop_test(tcase, server_that_hangs_up_behind_its_answer_has_given_none_but_an_error, 0, 2);
    tcase_add_test(tcase, error_is_told_with_its_detail_and_its_hint);
    tcase_add_test(tcase, library_without_words_is_one_line_all_the_same);
    tcase_add_test(tcase, what_a_function_of_ours_does_not_find_was_named_by_the_command);
    tcase_add_loop_test(tcase, only_what_migrations_make_is_mended_by_them, 0,
                        (int)(sizeof missing / sizeof missing[0]));
    return run_suite(suite);
}
