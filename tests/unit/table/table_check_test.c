/* Checks of a table whose questions are not answered: what the integration tests cannot bring about one by one. */
#include "relay/table/table.h"

#include "relay/postgres/query.h"
#include "tests/support/run_suite.h"

#include <string.h>

#define COLUMNS 8 /* as many as any answer has */

enum { SERVER, PRIVILEGES, FACTS, INDEXES, DELETES, SEQUENCE, FILTER, FILTER_TYPES, TRIGGERS, WORKERS };

static int asked, unanswered; /* questions; the one that fails */
static int64_t lost_name;     /* where in the condition there is a name that is not found */
static ConnStatusType status;
static bool forgiving; /* what was found so far is no error */
static const char *answers[COLUMNS];
static char name[] = "public.t", column[] = "id", where[] = "id > 0";
static struct table table;
static struct queue_config queue;
static struct findings findings;

ConnStatusType __wrap_PQstatus(const PGconn *conn);
PGresult *__wrap_query(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                       struct error *err);
PGresult *__wrap_query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                               struct error *err);

PGresult *__wrap_query_or_cancel(const struct asker *asker, const char *sql, int count, const char *const *params,
                                 struct error *err);

ConnStatusType __wrap_PQstatus(const PGconn *conn)
{
    (void)conn;
    return status;
}

/* One row of texts. */
static PGresult *answer(const char *what, struct error *err)
{
    static char text[] = "text";
    if (forgiving)
        findings.errors = 0;
    if (asked++ == unanswered) {
        error_set(err, ERROR_UNREACHABLE, "%s: no answer", what);
        return NULL;
    }
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc columns[COLUMNS];
    for (int i = 0; i < COLUMNS; i++)
        columns[i] = (PGresAttDesc){.name = text};
    ck_assert_int_eq(PQsetResultAttrs(result, COLUMNS, columns), 1);
    for (int i = 0; i < COLUMNS; i++) {
        char value[16];
        int size = snprintf(value, sizeof value, "%s", answers[i]);
        ck_assert_int_eq(PQsetvalue(result, 0, i, value, size), 1);
    }
    return result;
}

PGresult *__wrap_query(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                       struct error *err)
{
    (void)conn, (void)sql, (void)count, (void)params;
    return answer(what, err);
}

PGresult *__wrap_query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                               struct error *err)
{
    (void)conn, (void)sql, (void)count, (void)params;
    return answer(what, err);
}

PGresult *__wrap_query_or_cancel(const struct asker *asker, const char *sql, int count, const char *const *params,
                                 struct error *err)
{
    (void)sql, (void)count, (void)params;
    *asker->ret_position = lost_name;
    return answer(asker->what, err);
}

static void set_up(void)
{
    lost_name = 0;
    table = (struct table){.name_sql = name, .plain_name = name, .id_sql = column, .lock_class = 1};
    queue = (struct queue_config){
        .name = name, .place = "FILE:1:1", .where = where, .keys_per_claim = 16, .connections = 1};
    asked = 0;
    unanswered = -1;
    forgiving = false;
    status = CONNECTION_OK;
    for (int i = 0; i < COLUMNS; i++)
        answers[i] = "t";
}

START_TEST(question_without_an_answer_ends_the_check)
{
    struct error err;
    unanswered = _i;
    ck_assert(!table_check(NULL, &queue, &table, &findings, &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
    ck_assert_int_eq(asked, _i + 1);
}
END_TEST

START_TEST(condition_that_is_not_understood_is_a_finding_unless_the_connection_is_gone)
{
    struct error err;
    unanswered = FILTER;
    ck_assert(table_check(NULL, &queue, &table, &findings, &err));
    ck_assert_ptr_nonnull(strstr(findings.list[findings.count - 2].text, "the condition cannot be used"));
    asked = 0;
    status = CONNECTION_BAD;
    ck_assert(!table_check(NULL, &queue, &table, &findings, &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

static const struct {
    int64_t lost_name;
    int asked; /* of the condition */
    const char *text;
} lost_names[] = {
    {0, 1, "the condition cannot be used on public.t: where: no answer"},
    {31, 2, "no answer; names are looked up in pg_catalog alone, and not in the search_path of "},
    {-1, 1, "no answer; functions of a condition need a search_path of their own"},
};

START_TEST(name_that_is_not_found_is_looked_for_in_other_schemas)
{
    struct error err;
    unanswered = FILTER;
    lost_name = lost_names[_i].lost_name;
    ck_assert(table_check(NULL, &queue, &table, &findings, &err));
    ck_assert_int_eq(asked, FILTER + lost_names[_i].asked + 1);
    const char *text = findings.list[findings.count - 2].text;
    ck_assert_msg(strstr(text, lost_names[_i].text) != NULL, "%s", text);
}
END_TEST

START_TEST(what_workers_are_told_is_asked_last_and_only_when_nothing_is_wrong)
{
    struct error err;
    unanswered = WORKERS;
    ck_assert(table_check(NULL, &queue, &table, &findings, &err));
    ck_assert_int_eq(asked, WORKERS);
    asked = 0;
    forgiving = true;
    ck_assert(!table_check(NULL, &queue, &table, &findings, &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

START_TEST(index_of_what_is_delayed_is_asked_for_after_the_condition)
{
    static char due[] = "due";
    struct error err;
    table.not_before_sql = due;
    queue.delayed = DELAYED_PASS;
    unanswered = FILTER_TYPES + 1;
    ck_assert(!table_check(NULL, &queue, &table, &findings, &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
    ck_assert_int_eq(asked, FILTER_TYPES + 2);
}
END_TEST

START_TEST(queues_that_share_rows_need_the_same_locks)
{
    struct error err;
    struct table other = table;
    ck_assert(table_check_shared(NULL, &queue, &table, &queue, &other, &err));
    other.lock_class = 2;
    ck_assert(!table_check_shared(NULL, &queue, &table, &queue, &other, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "reads public.t with another lock class"));
    struct queue_config whole = queue;
    whole.where = NULL;
    ck_assert(!table_check_shared(NULL, &queue, &table, &whole, &table, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "already reads public.t;"));
    ck_assert(!table_check_shared(NULL, &whole, &table, &queue, &table, &err));
    asked = 0;
    unanswered = 0;
    ck_assert(!table_check_shared(NULL, &queue, &table, &queue, &table, &err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("table_check");
    TCase *tcase = tcase_create("table_check");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_loop_test(tcase, question_without_an_answer_ends_the_check, SERVER, FILTER);
    tcase_add_loop_test(tcase, question_without_an_answer_ends_the_check, FILTER_TYPES, WORKERS);
    tcase_add_loop_test(tcase, name_that_is_not_found_is_looked_for_in_other_schemas, 0,
                        (int)(sizeof lost_names / sizeof lost_names[0]));
    tcase_add_test(tcase, condition_that_is_not_understood_is_a_finding_unless_the_connection_is_gone);
    tcase_add_test(tcase, what_workers_are_told_is_asked_last_and_only_when_nothing_is_wrong);
    tcase_add_test(tcase, index_of_what_is_delayed_is_asked_for_after_the_condition);
    tcase_add_test(tcase, queues_that_share_rows_need_the_same_locks);
    return run_suite(suite);
}
