/* What per_key asks for while its sink is behind. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/per_key_stage.h"

static void claim_behind(void)
{
    struct claim_request request = {.max_keys = 10, .events_per_key = 1, .behind = true};
    ordering_per_key.claim(o, &request, 0, arena, statements, &plan);
    ck_assert(plan.behind);
}

START_TEST(behind_a_slow_sink_the_newest_are_asked_whether_they_are_the_first_of_their_key)
{
    probe(1000, 0, false, 0);
    claim();
    int64_t newest = parameter(0, 6), oldest = oldest_rows();
    ordering_per_key.claim_failed(o, &plan);
    claim_behind();
    ck_assert_ptr_nonnull(statements[0].values[15]);
    ck_assert_int_gt(parameter(0, 6), 2 * newest); /* many of them are not, */
    ck_assert_int_gt(oldest_rows(), 2 * oldest);   /* and others are on their way */
}
END_TEST

START_TEST(without_an_index_on_key_and_id_no_event_is_asked_whether_it_is_the_first_of_its_key)
{
    ordering_per_key.close(o);
    struct ordering_options options = {.queue = "orders", .variables = variables, .extra_columns = 2};
    o = ordering_per_key.open(&options, &err);
    claim_behind();
    ck_assert_ptr_null(statements[0].values[15]);
}
END_TEST

START_TEST(one_event_of_each_key_says_nothing_of_how_many_they_have)
{
    for (int claims = 0; claims < 2; claims++) {
        claim_behind();
        ck_assert(!plan.few);
        ck_assert(take_result(0, lock_row(900)));
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
    tcase_add_test(tcase, behind_a_slow_sink_the_newest_are_asked_whether_they_are_the_first_of_their_key);
    tcase_add_test(tcase, without_an_index_on_key_and_id_no_event_is_asked_whether_it_is_the_first_of_its_key);
    tcase_add_test(tcase, one_event_of_each_key_says_nothing_of_how_many_they_have);
    return run_suite(suite);
}
