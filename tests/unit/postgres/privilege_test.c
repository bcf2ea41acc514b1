/* What is said of rights that are missing: libpq is played here. */
#include "relay/postgres/privilege.h"

#include "tests/support/run_suite.h"

#include <string.h>

#define COLUMNS 3 /* of sql/table/table_privileges.sql */

static ConnStatusType status;
static const char *const (*rows)[COLUMNS]; /* what is missing, remedy, whether the work needs it */
static int row_count;
static bool refused; /* the question itself */
static char asked_oid[16], asked_works[64];

ConnStatusType __wrap_PQstatus(const PGconn *conn);
char *__wrap_PQuser(const PGconn *conn);
PGresult *__wrap_query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                               struct error *err);

ConnStatusType __wrap_PQstatus(const PGconn *conn)
{
    (void)conn;
    return status;
}

char *__wrap_PQuser(const PGconn *conn)
{
    static char name[] = "courier";
    (void)conn;
    return name;
}

PGresult *__wrap_query_in_time(PGconn *conn, const char *what, const char *sql, int count, const char *const *params,
                               struct error *err)
{
    static char text[] = "text";
    (void)sql;
    ck_assert_int_eq(count, 2);
    snprintf(asked_oid, sizeof asked_oid, "%s", params[0]);
    snprintf(asked_works, sizeof asked_works, "%s", params[1]);
    if (refused) {
        error_set(err, ERROR_PROTOCOL, "%s: refused", what);
        return NULL;
    }
    PGresult *result = PQmakeEmptyPGresult(conn, PGRES_TUPLES_OK);
    PGresAttDesc columns[COLUMNS] = {{.name = text}, {.name = text}, {.name = text}};
    ck_assert_int_eq(PQsetResultAttrs(result, COLUMNS, columns), 1);
    for (int i = 0; i < row_count * COLUMNS; i++) {
        char value[200];
        int size = snprintf(value, sizeof value, "%s", rows[i / COLUMNS][i % COLUMNS]);
        ck_assert_int_eq(PQsetvalue(result, i / COLUMNS, i % COLUMNS, value, size), 1);
    }
    return result;
}

static void set_up(void)
{
    status = CONNECTION_OK;
    rows = NULL;
    row_count = 0;
    refused = false;
    asked_oid[0] = asked_works[0] = '\0';
}

/* What becomes of an error. */
static const char *explained(enum error_kind kind)
{
    static struct error err;
    error_set(&err, kind, "permission denied");
    ck_assert(!privilege_explain(NULL, 1259, "{run}", &err));
    ck_assert_int_eq(err.kind, kind);
    return err.text;
}

START_TEST(missing_rights_are_named_with_the_statements_that_grant_them)
{
    static const char *const missing[][COLUMNS] = {
        {"lacks SELECT on a", "grant all on a;", "t"},
        {"lacks DELETE on a", "grant all on a;", "t"}, /* one statement for both */
        {"lacks USAGE on b", "grant usage on b;", "f"},
    };
    rows = missing;
    row_count = 3;
    ck_assert_str_eq(explained(ERROR_PERMISSION),
                     "permission denied; courier lacks SELECT on a, lacks DELETE on a, lacks USAGE on b"
                     "  fix: grant all on a; grant usage on b;");
    ck_assert_str_eq(asked_oid, "1259");
    ck_assert_str_eq(asked_works, "{run}");
}
END_TEST

START_TEST(long_list_of_names_leaves_room_for_the_statements)
{
    static char name[150];
    static const char *missing[3][COLUMNS];
    memset(name, 'x', sizeof name - 1);
    for (size_t i = 0; i < 3; i++) {
        missing[i][0] = name;
        missing[i][1] = "grant all on a;";
        missing[i][2] = "t";
    }
    rows = (const char *const(*)[COLUMNS])missing;
    row_count = 3;
    const char *text = explained(ERROR_PERMISSION);
    ck_assert_msg(strstr(text, "x  fix: grant all on a;") != NULL, "%s", text);
}
END_TEST

START_TEST(error_that_no_missing_right_explains_stays_as_it_is)
{
    ck_assert_str_eq(explained(ERROR_PERMISSION), "permission denied");
    ck_assert_str_eq(asked_works, "{run}");
}
END_TEST

START_TEST(first_error_is_told_when_the_rights_cannot_be_asked_for)
{
    refused = true;
    ck_assert_str_eq(explained(ERROR_PERMISSION), "permission denied");
    ck_assert_str_eq(asked_works, "{run}");
}
END_TEST

START_TEST(other_errors_and_lost_connections_are_not_asked_about)
{
    ck_assert_str_eq(explained(ERROR_TIMEOUT), "permission denied");
    status = CONNECTION_BAD;
    ck_assert_str_eq(explained(ERROR_PERMISSION), "permission denied");
    ck_assert_str_eq(asked_works, "");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("privilege");
    TCase *tcase = tcase_create("privilege");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, NULL);
    tcase_add_test(tcase, missing_rights_are_named_with_the_statements_that_grant_them);
    tcase_add_test(tcase, long_list_of_names_leaves_room_for_the_statements);
    tcase_add_test(tcase, error_that_no_missing_right_explains_stays_as_it_is);
    tcase_add_test(tcase, first_error_is_told_when_the_rights_cannot_be_asked_for);
    tcase_add_test(tcase, other_errors_and_lost_connections_are_not_asked_about);
    return run_suite(suite);
}
