/* A database that does not answer: libpq and poll(2) are played here. */
#include "relay/query.h"

#include "relay/base/clock.h"
#include "tests/support/run_suite.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

static int poll_result, poll_errno, sent, consumed;
static int polls; /* before there is something to read */
static instant_us clock_us, step_us;
static ExecStatusType statuses[4]; /* of the results that come, and then the end */
static size_t status_count, status_next;
static const char *error_fields[3]; /* SQLSTATE, detail, hint */
static const char *message;
static bool mute; /* libpq */

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
    (void)timeout_ms;
    polls -= poll_result != 0;
    for (nfds_t i = 0; i < count; i++)
        fds[i].revents = POLLIN;
    errno = poll_errno;
    return poll_result;
}

static void set_up(void)
{
    poll_result = poll_errno = 0;
    sent = consumed = polls = 1;
    clock_us = step_us = 0;
    status_count = status_next = 0;
    message = NULL;
    mute = false;
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

static const struct {
    int poll_result, poll_errno, consumed;
} ends[] = {{-1, EINVAL, 1}, {1, 0, 0}};

START_TEST(statement_that_cannot_be_waited_for_has_no_result)
{
    struct error err;
    poll_result = ends[_i].poll_result;
    poll_errno = ends[_i].poll_errno;
    consumed = ends[_i].consumed;
    ck_assert_ptr_null(query_or_cancel(NULL, -1, "select 1", 0, NULL, &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
    sent = 0;
    ck_assert_ptr_null(query_or_cancel(NULL, -1, "select 1", 0, NULL, &err));
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
    tcase_add_test(tcase, connection_that_breaks_is_unreachable);
    tcase_add_test(tcase, question_that_cannot_be_sent_is_unreachable);
    tcase_add_loop_test(tcase, server_that_hangs_up_behind_its_answer_has_given_none_but_an_error, 0, 2);
    tcase_add_test(tcase, error_is_told_with_its_detail_and_its_hint);
    tcase_add_test(tcase, library_without_words_is_one_line_all_the_same);
    tcase_add_loop_test(tcase, only_what_migrations_make_is_mended_by_them, 0,
                        (int)(sizeof missing / sizeof missing[0]));
    return run_suite(suite);
}
