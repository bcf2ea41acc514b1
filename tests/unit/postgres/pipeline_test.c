/* What goes out in a round of a session that a pooler shares, through relay/postgres/db.c. */
#include "tests/unit/stage/played_server.h"

#include "sql_text.h"
#include "tests/support/run_suite.h"

static const struct {
    const char *backend, *encoding;
    int prepared;
} shared[] = {{"815", "UTF8", PREPARED_AUTO}, {"815", "SQL_ASCII", PREPARED_AUTO}, {"4711", "UTF8", PREPARED_OFF}};

START_TEST(session_of_a_pooler_is_left_as_it_is_but_for_the_encoding_of_bytes)
{
    db_free(db);
    options.prepared = shared[_i].prepared;
    options.read_write = false; /* a standby will do */
    db = db_new(&options);
    ck_assert(is_spoken_to());
    say_welcome();
    ck_assert(is_spoken_to());
    say_hello_as(shared[_i].backend, "true", shared[_i].encoding);
    if (strcmp(shared[_i].encoding, "SQL_ASCII") == 0) {
        ck_assert(is_spoken_to());
        say_settings(1);
    }
    ck_assert_int_eq(next_event(), DB_UP);
    ck_assert(db_is_shared(db));
}
END_TEST

static void come_up_shared(int prepared)
{
    db_free(db);
    options.prepared = prepared;
    db = db_new(&options);
    ck_assert(is_spoken_to());
    say_welcome();
    ck_assert(is_spoken_to());
    say_hello_as("815", "false", "UTF8");
    ck_assert_int_eq(next_event(), DB_UP);
    ck_assert(db_is_shared(db));
    sent_count = 0;
}

/* The statements that were sent, as far as they are known here. */
static const char *sent_words(void)
{
    static char words[200];
    words[0] = '\0';
    for (size_t i = 0; i < sent_count; i++) {
        const char *word = sent[i] == sql_session_path         ? "path"
                           : sent[i] == sql_session_path_begun ? "path_begun"
                           : sent[i] == sql_claim_begin        ? "begin"
                                                               : sent[i];
        snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s", i ? ", " : "", word);
    }
    sent_count = 0;
    return words;
}

/* `count`: with those that nobody sees. */
static void run_round(const char *const *texts, int count)
{
    for (; *texts; texts++)
        ck_assert(db_send_sql(db, *texts, &err));
    ck_assert(db_end_round(db, &err));
    ck_assert(is_spoken_to());
    say_settings(count);
    enum db_event event;
    while ((event = next_event()) == DB_RESULT)
        PQclear(result.res);
    ck_assert_int_eq(event, DB_ROUND_END);
}

static const struct {
    const char *texts[6], *sent;
    int count;
    char status; /* of the transaction, when the round is over */
} paths[] = {
    {{"select 1", "select 2"}, "path, select 1, select 2", 3, 'I'},
    {{sql_claim_begin, "select 1"}, "begin, path_begun, select 1", 3, 'T'},
    {{"select 2", "commit", sql_claim_begin, "select 3"}, "select 2, commit, begin, path_begun, select 3", 5, 'T'},
    {{"select 4"}, "select 4", 1, 'T'}, /* still in that transaction */
    {{"rollback", sql_claim_begin}, "rollback, begin, path_begun", 3, 'T'},
    {{"select 5", "commit"}, "select 5, commit", 2, 'E'}, /* it fails, so the COMMIT is skipped */
    {{"select 6", "commit"}, "select 6, commit", 2, 'I'}, /* as ROLLBACK TO SAVEPOINT would be sent */
    {{"select 7"}, "path, select 7", 2, 'I'},
};

START_TEST(each_transaction_in_a_session_of_a_pooler_has_our_search_path)
{
    come_up_shared(PREPARED_AUTO);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        transaction_status = paths[i].status;
        run_round(paths[i].texts, paths[i].count);
        ck_assert_str_eq(sent_words(), paths[i].sent);
    }
}
END_TEST

START_TEST(path_that_is_refused_is_the_failure_of_the_statement_behind_it)
{
    come_up_shared(PREPARED_AUTO);
    ck_assert(db_send_sql(db, "select 1", &err) && db_end_round(db, &err));
    ck_assert(is_spoken_to());
    say_complaint("ERROR", "not here");
    say_ready();
    ck_assert_int_eq(next_event(), DB_RESULT);
    ck_assert_int_eq(PQresultStatus(result.res), PGRES_FATAL_ERROR);
    ck_assert_uint_eq(result.index, 0);
    PQclear(result.res);
    ck_assert_int_eq(next_event(), DB_RESULT);
    ck_assert_int_eq(PQresultStatus(result.res), PGRES_PIPELINE_ABORTED);
    ck_assert_uint_eq(result.index, 0);
    PQclear(result.res);
    ck_assert_int_eq(next_event(), DB_ROUND_END);
}
END_TEST

static const char *const unsent_paths[] = {"PQsendQueryParams set_config", "PQsendQueryParams set local search_path"};

START_TEST(path_that_cannot_be_sent_is_an_error)
{
    come_up_shared(PREPARED_AUTO);
    broken = unsent_paths[_i];
    ck_assert(!db_send_sql(db, _i ? sql_claim_begin : "select 1", &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

START_TEST(statements_are_prepared_in_another_backend_when_the_configuration_says_so)
{
    come_up_shared(PREPARED_ON);
    ck_assert(db_send_sql(db, "select 1", &err) && db_end_round(db, &err));
    ck_assert_int_eq(prepares, 1);
    ck_assert_str_eq(sent_words(), "path");
}
END_TEST

START_TEST(pooler_may_take_its_time)
{
    const char *const values[] = {"1", "false", "UTF8", "read committed"}; /* another backend than the welcome's */
    ck_assert(is_spoken_to());
    say_welcome();
    ck_assert(is_spoken_to());
    say('1', "", 0);
    say_row(4, values);
    say_ready();
    ck_assert_int_eq(next_event(), DB_UP);
    ck_assert(db_is_shared(db));
    ck_assert(db_send_sql(db, "select 1", &err) && db_end_round(db, &err));
    now += 3600 * SECOND_US;
    ck_assert_int_eq(turn(), DB_NOTHING);
}
END_TEST

#define COUNT(rows) ((int)(sizeof(rows) / sizeof((rows)[0])))

int main(void)
{
    Suite *suite = suite_create("pipeline");
    TCase *tcase = tcase_create("pipeline");
    suite_add_tcase(suite, tcase);
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_loop_test(tcase, session_of_a_pooler_is_left_as_it_is_but_for_the_encoding_of_bytes, 0, COUNT(shared));
    tcase_add_test(tcase, statements_are_prepared_in_another_backend_when_the_configuration_says_so);
    tcase_add_test(tcase, each_transaction_in_a_session_of_a_pooler_has_our_search_path);
    tcase_add_test(tcase, path_that_is_refused_is_the_failure_of_the_statement_behind_it);
    tcase_add_loop_test(tcase, path_that_cannot_be_sent_is_an_error, 0, COUNT(unsent_paths));
    tcase_add_test(tcase, pooler_may_take_its_time);
    return run_suite_forked(suite);
}
