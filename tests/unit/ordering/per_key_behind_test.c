/* What per_key asks for while its sink is behind. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/per_key_stage.h"

static void claim_behind(void)
{
    struct claim_request request = {.max_keys = 10, .events_per_key = 1, .behind = true};
    claim_for(&request);
    ck_assert(plan.behind);
}

START_TEST(behind_a_slow_sink_more_rows_are_looked_at)
{
    probe(1000, 0, false, 0);
    claim();
    int64_t newest = section_parameter(SECTION_NEWEST, 3), oldest = section_parameter(SECTION_OLDEST, 3);
    ordering_per_key.claim_failed(o, &plan);
    claim_behind();
    ck_assert_int_gt(section_parameter(SECTION_FRESH, 3), 2 * newest); /* many of them are of keys on their way */
    ck_assert_int_gt(section_parameter(SECTION_NEWEST, 3), 2 * newest);
    ck_assert_int_gt(section_parameter(SECTION_OLDEST, 3), 2 * oldest);
}
END_TEST

START_TEST(behind_a_slow_sink_no_more_keys_are_locked_and_one_event_of_each_is_read)
{
    probe(1000, 0, false, 0);
    claim_behind();
    ck_assert_int_eq(section_parameter(SECTION_NEWEST, 5), 9);
    ck_assert_int_eq(read_parameter(3), 1);
}
END_TEST

START_TEST(behind_a_slow_sink_the_newest_ids_alone_are_not_enough)
{
    for (int claims = 0; claims < 2; claims++) {
        claim_behind();
        ck_assert(!plan.fresh);
        take_nothing();
        finish_claim();
    }
}
END_TEST

START_TEST(one_event_of_each_key_says_nothing_of_how_many_they_have)
{
    for (int claims = 0; claims < 2; claims++) {
        claim_behind();
        ck_assert(!plan.few);
        take_seen(1, 900);
        plan.rows = plan.locked = 10;
        finish_claim();
    }
    claim();
    ck_assert(!plan.few);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("per_key_behind");
    TCase *tcase = tcase_create("per_key_behind");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, behind_a_slow_sink_more_rows_are_looked_at);
    tcase_add_test(tcase, behind_a_slow_sink_no_more_keys_are_locked_and_one_event_of_each_is_read);
    tcase_add_test(tcase, behind_a_slow_sink_the_newest_ids_alone_are_not_enough);
    tcase_add_test(tcase, one_event_of_each_key_says_nothing_of_how_many_they_have);
    return run_suite(suite);
}
