/* Whether what goes on fits the next table, with questions that are not answered and columns side by side.
 * tests/integration/delivery/test_stages.py asks a database. */
#include "relay/table/next_check.h"

#include "relay/postgres/query.h"
#include "tests/support/run_suite.h"

#include <string.h>

enum { RIGHTS, WANTS, FITS, TRIGGERS };

static int asked, unanswered; /* questions; the one that fails */
static bool nothing_wrong;    /* answers have no rows */
static ConnStatusType status;
static char name[] = "\"public\".\"t\"", plain[] = "public.t", column[] = "\"c\"";
static struct table table, next;
static struct queue_config queue;
static struct findings findings;

ConnStatusType __wrap_PQstatus(const PGconn *conn);
PGresult *__wrap_query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                               struct error *err);

ConnStatusType __wrap_PQstatus(const PGconn *conn)
{
    (void)conn;
    return status;
}

PGresult *__wrap_query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                               struct error *err)
{
    static char text[] = "text", value[] = "t";
    (void)conn, (void)sql, (void)count, (void)params;
    if (asked++ == unanswered) {
        error_set(err, ERROR_UNREACHABLE, "%s: no answer", what);
        return NULL;
    }
    PGresult *result = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    PGresAttDesc columns[3] = {{.name = text}, {.name = text}, {.name = text}};
    ck_assert_int_eq(PQsetResultAttrs(result, 3, columns), 1);
    for (int i = 0; i < 3 && !nothing_wrong; i++)
        ck_assert_int_eq(PQsetvalue(result, 0, i, value, 1), 1);
    return result;
}

static void set_up(void)
{
    next = (struct table){.oid = 2, .name_sql = name, .plain_name = plain, .id_sql = column, .payload_sql = column};
    table = next;
    table.oid = 1;
    table.next = &next;
    queue = (struct queue_config){.name = plain, .place = "FILE:1:1", .then = plain};
    findings = (struct findings){0};
    asked = 0;
    unanswered = -1;
    nothing_wrong = true;
    status = CONNECTION_OK;
}

static bool check(struct error *err)
{
    return next_check(NULL, &queue, &table, &findings, err);
}

static void assert_says(enum finding_level level, const char *part)
{
    struct error err;
    ck_assert(check(&err));
    ck_assert_uint_eq(findings.count, 1);
    ck_assert_int_eq(findings.list[0].level, level);
    ck_assert_msg(strstr(findings.list[0].text, part) != NULL, "%s", findings.list[0].text);
}

static void assert_fits(void)
{
    struct error err;
    ck_assert(check(&err));
    ck_assert_uint_eq(findings.count, 0);
    ck_assert_int_eq(asked, TRIGGERS + 1);
}

START_TEST(nothing_is_said_of_tables_that_fit)
{
    assert_fits();
}
END_TEST

START_TEST(question_without_an_answer_ends_the_check)
{
    struct error err;
    unanswered = _i;
    status = CONNECTION_BAD;
    ck_assert(!check(&err));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

START_TEST(what_the_database_does_not_plan_is_a_finding)
{
    unanswered = FITS;
    assert_says(FINDING_ERROR, "does not fit public.t: then: no answer");
}
END_TEST

START_TEST(what_is_missing_keeps_the_rest_from_being_asked)
{
    struct error err;
    nothing_wrong = false;
    ck_assert(check(&err));
    ck_assert_int_eq(asked, FITS + 1); /* but for the triggers */
    ck_assert_uint_eq(findings.errors, 2);
    ck_assert_uint_eq(findings.denied, 2);
}
END_TEST

START_TEST(tables_without_a_column_in_common_are_no_stages)
{
    next.payload_sql = NULL;
    next.key_sql = table.type_sql = table.headers_sql = table.traceparent_sql = column;
    assert_says(FINDING_ERROR, "nothing would go on");
}
END_TEST

START_TEST(any_column_in_common_will_do)
{
    char **const columns[][2] = {{&table.key_sql, &next.key_sql},
                                 {&table.type_sql, &next.type_sql},
                                 {&table.headers_sql, &next.headers_sql},
                                 {&table.traceparent_sql, &next.traceparent_sql}};
    next.payload_sql = table.payload_sql = NULL;
    *columns[_i][0] = *columns[_i][1] = column;
    assert_fits();
}
END_TEST

START_TEST(payloads_that_end_here_are_told)
{
    next.payload_sql = NULL;
    table.type_sql = next.type_sql = column;
    assert_says(FINDING_WARNING, "payloads do not go on");
}
END_TEST

START_TEST(keys_that_end_here_are_told)
{
    table.key_sql = column;
    assert_says(FINDING_WARNING, "keys do not go on");
}
END_TEST

START_TEST(one_table_for_both_is_told)
{
    next.oid = table.oid;
    assert_says(FINDING_WARNING, "the same table");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("next_check");
    TCase *tcase = tcase_create("next_check");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, nothing_is_said_of_tables_that_fit);
    tcase_add_loop_test(tcase, question_without_an_answer_ends_the_check, RIGHTS, FITS + 1);
    tcase_add_test(tcase, what_the_database_does_not_plan_is_a_finding);
    tcase_add_test(tcase, what_is_missing_keeps_the_rest_from_being_asked);
    tcase_add_test(tcase, tables_without_a_column_in_common_are_no_stages);
    tcase_add_loop_test(tcase, any_column_in_common_will_do, 0, 4);
    tcase_add_test(tcase, payloads_that_end_here_are_told);
    tcase_add_test(tcase, keys_that_end_here_are_told);
    tcase_add_test(tcase, one_table_for_both_is_told);
    return run_suite(suite);
}
