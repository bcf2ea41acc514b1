#include "relay/postgres/sqlstate.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

START_TEST(every_failure_has_its_remedy)
{
    static const struct {
        const char *sqlstate;
        enum db_remedy remedy;
        enum error_kind kind;
    } rows[] = {
        {NULL, DB_RECONNECT, ERROR_UNREACHABLE},    /* the connection broke */
        {"57P01", DB_RECONNECT, ERROR_UNREACHABLE}, /* pg_terminate_backend, fast shutdown */
        {"57P03", DB_RECONNECT, ERROR_UNREACHABLE}, /* starting up */
        {"57014", DB_RETRY, ERROR_TIMEOUT},         /* statement_timeout */
        {"25P03", DB_RECONNECT, ERROR_TIMEOUT},     /* idle in transaction for too long */
        {"25P04", DB_RECONNECT, ERROR_TIMEOUT},     /* in a transaction for too long */
        {"25006", DB_RECONNECT, ERROR_UNREACHABLE}, /* a standby */
        {"53200", DB_SHRINK, ERROR_RESOURCE},       /* the lock table is full */
        {"53100", DB_RETRY, ERROR_RESOURCE},        /* the disk is full */
        {"53300", DB_RECONNECT, ERROR_OVERLOADED},  /* too many connections */
        {"40001", DB_RETRY, ERROR_CONFLICT},        {"40P01", DB_RETRY, ERROR_CONFLICT}, /* deadlock */
        {"55P03", DB_RETRY, ERROR_CONFLICT},                                             /* lock_timeout */
        {"26000", DB_UNPREPARED, ERROR_CONFLICT}, /* a pooler gave us another session */
        {"42P05", DB_UNPREPARED, ERROR_CONFLICT},   {"42P01", DB_FIX, ERROR_CONFIG}, /* the table is gone */
        {"42501", DB_FIX, ERROR_PERMISSION},        {"28P01", DB_FIX, ERROR_PERMISSION},
        {"08006", DB_RECONNECT, ERROR_UNREACHABLE}, {"XX000", DB_RECONNECT, ERROR_INTERNAL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct sqlstate_rule *rule = sqlstate_rule(rows[i].sqlstate);
        ck_assert_msg(rule->remedy == rows[i].remedy, "%s: remedy %d", rows[i].sqlstate, rule->remedy);
        ck_assert_msg(rule->kind == rows[i].kind, "%s: %s", rows[i].sqlstate, error_kind_name(rule->kind));
        ck_assert_uint_gt(strlen(rule->why), 5);
    }
}
END_TEST

START_TEST(only_what_fewer_rows_may_pass_is_looked_for_in_rows)
{
    static const struct {
        enum db_refusal refusal;
        const char *sqlstates[16];
    } rows[] = {
        {REFUSAL_OF_ROW,
         {"23503", "23514", "22001", "P0001", "42501", "54000", "AB123", "XX000", "XX001", "0A000", "25000", "55000",
          "55006"}},
        {REFUSAL_BY_LOCK, {"55P03", "40001", "40P01", "53100", "53200", "57P01", "58030", "08006"}},
        {REFUSAL_BY_TIME, {"57014"}},
        {REFUSAL_NONE, {"25006", "25P02", "25P03", "26000", "42P05"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (size_t j = 0; rows[i].sqlstates[j]; j++)
            ck_assert_msg(sqlstate_rule(rows[i].sqlstates[j])->refusal == rows[i].refusal, "%s", rows[i].sqlstates[j]);
    ck_assert_int_eq(sqlstate_rule(NULL)->refusal, REFUSAL_NONE);
}
END_TEST

START_TEST(unknown_states_have_a_rule_too)
{
    static const char *const states[] = {"22012", "P0001", "ZZZZZ", "", "4"};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++)
        ck_assert_ptr_nonnull(sqlstate_rule(states[i]));
}
END_TEST

START_TEST(constraint_is_no_fault_of_a_commands_arguments)
{
    ck_assert_int_eq(sqlstate_rule("23505")->kind, ERROR_CONFLICT); /* `dead retry` of an id that is there again */
    ck_assert_int_eq(sqlstate_rule("22003")->kind, ERROR_REFUSED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("sqlstate");
    TCase *tcase = tcase_create("sqlstate");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, every_failure_has_its_remedy);
    tcase_add_test(tcase, only_what_fewer_rows_may_pass_is_looked_for_in_rows);
    tcase_add_test(tcase, unknown_states_have_a_rule_too);
    tcase_add_test(tcase, constraint_is_no_fault_of_a_commands_arguments);
    return run_suite(suite);
}
