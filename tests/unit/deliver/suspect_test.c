#include "relay/deliver/suspect.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

static struct stage stage;
static struct keyset suspects;
static struct item *first, *second;

static void set_up(void)
{
    stage_init(&stage, "there");
    keyset_init(&suspects, 1);
    struct batch *batch = stage_batch(&stage);
    first = stage_event(batch, 1, "a");
    second = stage_event(batch, 2, "b");
}

static void tear_down(void)
{
    keyset_done(&suspects);
    stage_done(&stage);
}

START_TEST(failure_counts_once_others_were_taken)
{
    ck_assert(!suspect_fails_again(&suspects, first, 0, SECOND_US));
    first->submitted_at = 2 * SECOND_US;
    ck_assert(!suspect_fails_again(&suspects, first, 0, 2 * SECOND_US));
    ck_assert(suspect_fails_again(&suspects, first, 3 * SECOND_US, 4 * SECOND_US));
}
END_TEST

START_TEST(event_that_cannot_be_remembered_is_not_blamed)
{
    ck_assert(!suspect_fails_again(&suspects, first, 0, SECOND_US));
    for (int i = 2; i < 9; i++)
        ck_assert(!suspect_fails_again(&suspects, second, i * SECOND_US, i * SECOND_US));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("suspect");
    TCase *tcase = tcase_create("suspect");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, failure_counts_once_others_were_taken);
    tcase_add_test(tcase, event_that_cannot_be_remembered_is_not_blamed);
    return run_suite(suite);
}
