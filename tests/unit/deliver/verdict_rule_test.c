#include "relay/deliver/verdict_rule.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

START_TEST(outcome_of_every_combination)
{
    static const struct {
        enum verdict verdict;
        enum blame blame;
        bool last;
        enum lane_outcome dead_letter, park; /* by policy */
    } rows[] = {
        {VERDICT_RETRY, BLAME_EVENT, false, LANE_RETRY, LANE_RETRY},
        {VERDICT_RETRY, BLAME_EVENT, true, LANE_DEAD, LANE_CLOSED},
        {VERDICT_RETRY, BLAME_DESTINATION, false, LANE_RELEASED, LANE_RELEASED},
        {VERDICT_RETRY, BLAME_DESTINATION, true, LANE_RELEASED, LANE_RELEASED},
        {VERDICT_RETRY, BLAME_NOBODY, false, LANE_RELEASED, LANE_RELEASED},
        {VERDICT_RETRY, BLAME_NOBODY, true, LANE_RELEASED, LANE_RELEASED},
        {VERDICT_UNKNOWN, BLAME_NOBODY, true, LANE_RELEASED, LANE_RELEASED},
        {VERDICT_UNKNOWN, BLAME_EVENT, false, LANE_RETRY, LANE_RETRY},
        {VERDICT_UNKNOWN, BLAME_EVENT, true, LANE_DEAD, LANE_CLOSED},
        {VERDICT_UNKNOWN, BLAME_DESTINATION, false, LANE_RELEASED, LANE_RELEASED},
        {VERDICT_UNKNOWN, BLAME_DESTINATION, true, LANE_RELEASED, LANE_RELEASED},
        {VERDICT_REJECTED, BLAME_EVENT, false, LANE_DEAD, LANE_CLOSED},
        {VERDICT_REJECTED, BLAME_EVENT, true, LANE_DEAD, LANE_CLOSED},
        {VERDICT_REJECTED, BLAME_DESTINATION, false, LANE_DEAD, LANE_CLOSED},
        {VERDICT_REJECTED, BLAME_DESTINATION, true, LANE_DEAD, LANE_CLOSED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_msg(verdict_rule(rows[i].verdict, rows[i].blame, rows[i].last, ON_EXHAUSTED_DEAD_LETTER) ==
                          rows[i].dead_letter,
                      "row %zu, dead_letter", i);
        ck_assert_msg(verdict_rule(rows[i].verdict, rows[i].blame, rows[i].last, ON_EXHAUSTED_PARK) == rows[i].park,
                      "row %zu, park", i);
    }
}
END_TEST

START_TEST(blame_of_every_cause)
{
    static const struct {
        enum error_kind kind;
        enum blame repeated, first; /* it has failed before, and the destination has taken others since */
    } rows[] = {
        {ERROR_UNREACHABLE, BLAME_DESTINATION, BLAME_DESTINATION},
        {ERROR_ROUTE, BLAME_DESTINATION, BLAME_DESTINATION},
        {ERROR_OVERLOADED, BLAME_EVENT, BLAME_DESTINATION},
        {ERROR_TIMEOUT, BLAME_EVENT, BLAME_DESTINATION},
        {ERROR_REFUSED, BLAME_EVENT, BLAME_EVENT},
        {ERROR_BYSTANDER, BLAME_NOBODY, BLAME_NOBODY},
        {ERROR_LOST_CLAIM, BLAME_NOBODY, BLAME_NOBODY},
        {ERROR_PROTOCOL, BLAME_EVENT, BLAME_EVENT},
        {ERROR_RESOURCE, BLAME_EVENT, BLAME_EVENT},
        {ERROR_INTERNAL, BLAME_EVENT, BLAME_EVENT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct error cause = {.kind = rows[i].kind};
        struct delivery d = {.verdict = VERDICT_RETRY, .cause = &cause};
        ck_assert_msg(verdict_blame(&d, true) == rows[i].repeated, "row %zu, repeated", i);
        ck_assert_msg(verdict_blame(&d, false) == rows[i].first, "row %zu, first", i);
        d.verdict = VERDICT_UNKNOWN;
        ck_assert_int_eq(verdict_blame(&d, true), rows[i].kind == ERROR_UNREACHABLE ? BLAME_EVENT : rows[i].repeated);
        d.verdict = VERDICT_REJECTED; /* "the same bytes never will" is about the bytes */
        ck_assert_int_eq(verdict_blame(&d, false), BLAME_EVENT);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("verdict_rule");
    TCase *tcase = tcase_create("verdict_rule");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, outcome_of_every_combination);
    tcase_add_test(tcase, blame_of_every_cause);
    return run_suite(suite);
}
