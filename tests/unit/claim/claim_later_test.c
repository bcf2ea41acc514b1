/* Keys that are asked for by name, and that others have. */
#include "tests/support/run_suite.h"
#include "tests/unit/stage/claim_request_stage.h"

static const struct span asked_for[] = {{"a", 1}, {"b", 1}};

START_TEST(key_that_others_have_is_asked_for_by_name_again_later)
{
    claims[0].followed = asked_for;
    claims[0].followed_count = 2;
    miss(&claims[0], "c"); /* its ids are known to be missed */
    ck_assert_uint_eq(stage.queue.keys.busy_elsewhere.count, 0);
    miss(&claims[0], "b");
    ck_assert_uint_eq(stage.queue.keys.busy_elsewhere.count, 1);
    ck_assert_uint_eq(stage.queue.keys.more.count, 0);
    ck_assert_uint_eq(claim_request_make(&claims[1], true, 10, NOW + 250 * MS_US - 1)->follow_key_count, 0);
    const struct claim_request *request = claim_request_make(&claims[1], true, 10, NOW + 250 * MS_US);
    ck_assert_uint_eq(request->follow_key_count, 1);
    ck_assert(has(request->follow_keys, 1, "b"));
    ck_assert_uint_eq(stage.queue.keys.busy_elsewhere.count, 0);
}
END_TEST

START_TEST(key_that_is_followed_already_when_its_time_comes_is_followed_once)
{
    claims[0].followed = asked_for;
    claims[0].followed_count = 2;
    miss(&claims[0], "b");
    follow("b", &claims[1]);
    ck_assert_uint_eq(claim_request_make(&claims[0], true, 10, NOW + SECOND_US)->follow_key_count, 0);
    ck_assert_uint_eq(stage.queue.keys.more.count, 1);
    ck_assert_ptr_eq(stage.queue.keys.more.entries[0].owner, &claims[1]);
}
END_TEST

START_TEST(missed_key_that_is_in_a_lane_of_ours_is_followed_after_it)
{
    claims[0].followed = asked_for;
    claims[0].followed_count = 2;
    lane_of(&claims[1], "b");
    miss(&claims[0], "b");
    ck_assert_uint_eq(stage.queue.keys.busy_elsewhere.count, 0);
}
END_TEST

/* Of the lane's own events, seen by a claim beside it, nothing follows. */
START_TEST(missed_key_is_followed_only_when_more_was_found_of_it_than_its_lane_has)
{
    static const struct {
        int64_t low, high;
        bool more;
    } found[] = {{5, 7, false}, {6, 6, false}, {5, 8, true}, {4, 7, true}, {1, 0, true}};
    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        struct batch *batch = batch_of(&claims[1]);
        struct lane *lane = stage_event(batch, 5, "b")->lane;
        stage_event(batch, 7, "b");
        miss_ids(&claims[0], "b", found[i].low, found[i].high);
        ck_assert_int_eq(lane->more, found[i].more);
        miss_ids(&claims[0], "b", 5, 7);
        ck_assert_int_eq(lane->more, found[i].more);
    }
}
END_TEST

START_TEST(where_no_more_names_can_be_kept_all_ids_are_looked_at_again)
{
    keyset_done(&stage.queue.keys.busy_elsewhere);
    keyset_init(&stage.queue.keys.busy_elsewhere, 0);
    claims[0].followed = asked_for;
    claims[0].followed_count = 2;
    stage.noting.released = (struct id_range){1, 0};
    miss(&claims[0], "b");
    ck_assert_int_eq(stage.noting.released.lo, SCAN_ID_MIN);
    keyset_done(&stage.queue.keys.busy_elsewhere);
    keyset_init(&stage.queue.keys.busy_elsewhere, 1);
    miss(&claims[0], "b");
    keyset_done(&stage.queue.keys.more);
    keyset_init(&stage.queue.keys.more, 0);
    stage.noting.released = (struct id_range){1, 0};
    claim_request_make(&claims[0], true, 10, NOW + SECOND_US);
    ck_assert_int_eq(stage.noting.released.lo, SCAN_ID_MIN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("claim_later");
    TCase *tcase = tcase_create("claim_later");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, key_that_others_have_is_asked_for_by_name_again_later);
    tcase_add_test(tcase, key_that_is_followed_already_when_its_time_comes_is_followed_once);
    tcase_add_test(tcase, missed_key_that_is_in_a_lane_of_ours_is_followed_after_it);
    tcase_add_test(tcase, missed_key_is_followed_only_when_more_was_found_of_it_than_its_lane_has);
    tcase_add_test(tcase, where_no_more_names_can_be_kept_all_ids_are_looked_at_again);
    return run_suite(suite);
}
