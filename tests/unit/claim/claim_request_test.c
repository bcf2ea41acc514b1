#include "relay/claim/claim_request.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/claim_request_stage.h"

#include <stdio.h>

static struct lane *lost_lane(struct claim *claim, const char *key)
{
    struct lane *lane = lane_of(claim, key);
    struct batch *batch = claim->batches;
    claim->batches = batch->next;
    batch_hold(batch, HOLD_LOST);
    batch->next = stage.queue.holds.orphans;
    stage.queue.holds.orphans = batch;
    return lane;
}

static void avoid(const char *key, instant_us until)
{
    ck_assert(keyset_put(&stage.queue.keys.destination_down, span_of(key), span_hash(span_of(key)), until, NULL));
}

START_TEST(keys_that_this_relay_is_busy_with_are_left_out)
{
    lane_of(&claims[0], "own")->state = LANE_SETTLING; /* in the same round */
    lane_of(&claims[1], "other");                      /* its lock keeps it away */
    lost_lane(&claims[0], "lost");
    lost_lane(&claims[0], NULL);
    avoid("down", NOW + 1);
    avoid("back", NOW);
    const struct claim_request *request = claim_request_make(&claims[0], false, 10, NOW);
    ck_assert_uint_eq(request->busy_key_count, 2);
    ck_assert(has(request->busy_keys, 2, "lost") && has(request->busy_keys, 2, "down"));
    ck_assert_uint_eq(request->busy_keyless_count, 1);
    request = claim_request_make(&claims[0], true, 10, NOW);
    ck_assert_uint_eq(request->busy_key_count, 3);
    ck_assert(has(request->busy_keys, 3, "own"));
}
END_TEST

START_TEST(key_whose_lock_its_session_keeps_is_not_claimed_again)
{
    struct lane *lane = lane_of(&claims[0], "own");
    lane_of(&claims[0], NULL);
    lane_hold(lane, HOLD_SESSION);
    batch_hold(lane->batch, HOLD_SESSION);
    follow("own", NULL);
    const struct claim_request *request = claim_request_make(&claims[0], false, 10, NOW);
    ck_assert_uint_eq(request->busy_key_count, 1);
    ck_assert_uint_eq(request->busy_keyless_count, 1);
    ck_assert_uint_eq(request->follow_key_count, 0);
    ck_assert(lane->more); /* followed when it is settled */
}
END_TEST

/* Its wait could not be settled yet: the session would be given the same lock once more. */
START_TEST(event_that_was_gone_and_whose_lock_its_session_keeps_is_left_out)
{
    struct batch *batch = batch_of(&claims[0]);
    batch_add_ended_wait(batch, (struct span){NULL, 0}, 7);
    lane_hold(batch->lanes, HOLD_SESSION);
    batch_hold(batch, HOLD_SESSION);
    const struct claim_request *request = claim_request_make(&claims[0], false, 10, NOW);
    ck_assert_uint_eq(request->busy_keyless_count, 1);
    ck_assert_int_eq(request->busy_keyless_ids[0], 7);
}
END_TEST

START_TEST(settled_key_of_a_kept_batch_is_anybodys)
{
    struct lane *lane = lane_of(&claims[1], "a");
    batch_hold(lane->batch, HOLD_SESSION);
    lane->state = LANE_SETTLED;
    miss(&claims[0], "a");
    ck_assert_uint_eq(stage.queue.keys.more.count, 0);
}
END_TEST

static void avoid_keyless(int64_t id, instant_us until)
{
    struct span name = {(const char *)&id, sizeof id};
    ck_assert(keyset_put(&stage.queue.keys.destination_down_ids, name, span_hash(name), until, NULL));
}

START_TEST(avoided_events_without_a_key_are_left_out)
{
    avoid_keyless(7, NOW + 1);
    avoid_keyless(8, NOW);
    const struct claim_request *request = claim_request_make(&claims[0], false, 10, NOW);
    ck_assert_uint_eq(request->busy_key_count, 0);
    ck_assert_uint_eq(request->busy_keyless_count, 1);
    ck_assert_int_eq(request->busy_keyless_ids[0], 7);
}
END_TEST

START_TEST(event_that_was_gone_when_it_was_claimed_is_not_left_out)
{
    struct batch *batch = batch_of(&claims[0]);
    batch_add_ended_wait(batch, (struct span){NULL, 0}, 7);
    ck_assert_uint_eq(claim_request_make(&claims[0], true, 10, NOW)->busy_keyless_count, 0);
}
END_TEST

/* Its session has the lock and would get it again, and one settlement cannot write two waits of one event. */
START_TEST(event_without_a_key_that_is_not_due_is_left_out_until_its_wait_is_written)
{
    batch_add_delayed(batch_of(&claims[0]), (struct span){NULL, 0}, 7, 500);
    const struct claim_request *request = claim_request_make(&claims[0], true, 10, NOW);
    ck_assert_uint_eq(request->busy_keyless_count, 1);
    ck_assert_int_eq(request->busy_keyless_ids[0], 7);
}
END_TEST

START_TEST(key_is_not_taken_for_another_of_its_hash)
{
    lane_of(&claims[1], "b")->hash = span_hash(span_of("a"));
    follow("a", NULL);
    ck_assert(claim_has_followed(&claims[0]));
    ck_assert_uint_eq(claim_request_make(&claims[1], true, 10, NOW)->follow_key_count, 1);
}
END_TEST

START_TEST(any_number_of_keys_may_be_busy)
{
    struct batch *batch = batch_of(&claims[0]);
    char key[16];
    for (int i = 0; i < 5000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        stage_event(batch, i, i % 2 ? key : NULL);
    }
    const struct claim_request *request = claim_request_make(&claims[0], true, 10, NOW);
    ck_assert_uint_eq(request->busy_key_count, 2500);
    ck_assert_uint_eq(request->busy_keyless_count, 2500);
}
END_TEST

START_TEST(half_of_a_claim_may_be_followed_keys)
{
    char key[16];
    for (int i = 0; i < 4000; i++) {
        snprintf(key, sizeof key, "k%d", i);
        follow(key, NULL);
    }
    const struct claim_request *request = claim_request_make(&claims[0], false, 4096, NOW);
    ck_assert_uint_eq(request->follow_key_count, 2048);
    ck_assert_uint_eq(stage.queue.keys.more.count, 4000 - 2048);
}
END_TEST

START_TEST(claim_of_one_key_may_be_a_followed_key_by_chance)
{
    size_t n = 0;
    for (int i = 0; i < 200; i++) {
        follow("a", NULL);
        n += claim_request_make(&claims[0], false, 1, NOW)->follow_key_count;
    }
    ck_assert_uint_gt(n, 60);
    ck_assert_uint_lt(n, 140);
}
END_TEST

START_TEST(claim_that_holds_as_many_locks_as_it_may_asks_only_for_its_own_keys)
{
    follow("own", &claims[0]);
    follow("also", &claims[0]);
    follow("busy", &claims[0]);
    follow("down", &claims[0]);
    follow("free", NULL);
    lane_of(&claims[0], "busy");
    avoid("down", NOW + 1);
    ck_assert_uint_eq(claim_count_followed(&claims[0]), 2);
    claims[0].full = true;
    const struct claim_request *request = claim_request_make(&claims[0], true, 2, NOW);
    ck_assert(request->followed_only);
    ck_assert_uint_eq(request->follow_key_count, 2);
    ck_assert(has(request->follow_keys, 2, "own") && has(request->follow_keys, 2, "also"));
    claim_forget_held(&claims[0]);
    ck_assert(!claim_request_make(&claims[0], false, 2, NOW)->followed_only);
}
END_TEST

START_TEST(followed_key_is_asked_for_by_the_claim_that_can_have_it)
{
    follow("free", NULL);
    follow("own", &claims[0]);
    follow("other", &claims[1]);
    follow("lost", NULL);
    lost_lane(&claims[0], "lost");
    const struct claim_request *request = claim_request_make(&claims[0], false, 10, NOW);
    ck_assert_uint_eq(request->follow_key_count, 2);
    ck_assert(has(request->follow_keys, 2, "free") && has(request->follow_keys, 2, "own"));
    ck_assert_uint_eq(stage.queue.keys.more.count, 2);
}
END_TEST

START_TEST(followed_key_that_its_claim_is_busy_with_is_followed_after_it)
{
    struct lane *lane = lane_of(&claims[0], "a");
    follow("a", &claims[0]);
    ck_assert_uint_eq(claim_request_make(&claims[0], true, 10, NOW)->follow_key_count, 0);
    ck_assert(lane->more);
    ck_assert(!claim_has_followed(&claims[0])); /* or it would claim in vain, over and over */
}
END_TEST

START_TEST(claim_that_was_cut_short_follows_what_it_did_not_get)
{
    follow("got", NULL);
    follow("not", NULL);
    follow("", NULL);
    claim_request_make(&claims[0], false, 10, NOW);
    stage_event(claims[0].arriving, 1, NULL);
    stage_event(claims[0].arriving, 2, "got");
    claim_follow_again(&claims[0], NOW);
    ck_assert_uint_eq(stage.queue.keys.more.count, 2); /* an event without a key is not an event of the key "" */
}
END_TEST

static void fill_follow_list(void)
{
    for (uint64_t i = stage.queue.keys.more.count; i < stage.queue.keys.more.max; i++)
        ck_assert(keyset_put(&stage.queue.keys.more, (struct span){(char *)&i, sizeof i}, i, 0, NULL));
}

START_TEST(what_a_full_list_cannot_take_is_left_to_the_scan)
{
    follow("not", NULL);
    claim_request_make(&claims[0], false, 10, NOW);
    fill_follow_list();
    claim_follow_again(&claims[0], NOW);
    ck_assert_uint_eq(stage.noting.released_count, 1);
    ck_assert_int_eq(stage.noting.released.lo, SCAN_ID_MIN);
    ck_assert_int_eq(stage.noting.released.hi, SCAN_ID_MAX);
    struct found_key missed = {span_of("b"), {1, 0}};
    claims[0].plan = (struct claim_plan){.missed = {&missed, 1}};
    ck_assert(keyset_put(&claims[1].held, missed.key, span_hash(missed.key), 0, NULL));
    claim_follow_missed(&claims[0], NOW);
    ck_assert_uint_eq(stage.noting.released_count, 2);
}
END_TEST

/* ---- reasons to claim ---- */

START_TEST(followed_keys_are_a_reason_to_claim_only_for_who_can_have_them)
{
    ck_assert(!claim_has_followed(&claims[0]));
    follow("other", &claims[1]);
    ck_assert(!claim_has_followed(&claims[0]));
    ck_assert(claim_has_followed(&claims[1]));
    follow("free", NULL);
    ck_assert(claim_has_followed(&claims[0]));
}
END_TEST

START_TEST(followed_keys_that_every_claim_leaves_out_are_no_reason_to_claim)
{
    follow("lost", NULL);
    follow("down", NULL);
    struct lane *lane = lost_lane(&claims[0], "lost");
    avoid("down", NOW + SECOND_US);
    ck_assert(!claim_has_followed(&claims[0]));
    lane->state = LANE_SETTLED;
    ck_assert(claim_has_followed(&claims[0]));
}
END_TEST

/* ---- keys that were found and could not be taken ---- */

START_TEST(key_that_another_claim_of_ours_has_is_followed_by_that_claim)
{
    struct lane *lane = lane_of(&claims[1], "a");
    miss(&claims[0], "a");
    ck_assert(lane->more);
    ck_assert_uint_eq(stage.queue.keys.more.count, 0);
    /* Settled ahead of its claim's end: the lock is still there. */
    ck_assert(keyset_put(&claims[1].held, span_of("b"), span_hash(span_of("b")), 0, NULL));
    miss(&claims[0], "b");
    ck_assert_uint_eq(stage.queue.keys.more.count, 1);
    ck_assert_ptr_eq(stage.queue.keys.more.entries[0].owner, &claims[1]);
}
END_TEST

START_TEST(key_that_a_straggler_of_this_claim_has_is_followed_after_it)
{
    struct lane *lane = lane_of(&claims[0], "a");
    miss(&claims[0], "a");
    ck_assert(lane->more);
}
END_TEST

START_TEST(key_that_was_settled_aside_while_this_claim_asked_is_followed)
{
    lane_of(&claims[0], "a")->state = LANE_SETTLED;
    claims[0].batches->unsettled = 0;
    claim_free_settled(&claims[0]);
    ck_assert_ptr_null(claims[0].batches);
    miss(&claims[0], "a");
    ck_assert_uint_eq(stage.queue.keys.more.count, 1);
    ck_assert_ptr_eq(stage.queue.keys.more.entries[0].owner, &claims[0]);
}
END_TEST

START_TEST(locks_of_settled_lanes_count_until_the_transaction_ends_with_and_without_a_key)
{
    lane_of(&claims[0], "a")->state = LANE_SETTLED;
    lane_of(&claims[0], NULL)->state = LANE_SETTLED;
    for (struct batch *batch = claims[0].batches; batch; batch = batch->next)
        batch->unsettled = 0;
    lane_of(&claims[0], NULL);
    ck_assert_uint_eq(claim_count_held(&claims[0]), 3);
    claim_free_settled(&claims[0]);
    ck_assert_uint_eq(claim_count_held(&claims[0]), 3);
    claim_forget_held(&claims[0]);
    ck_assert_uint_eq(claim_count_held(&claims[0]), 1);
}
END_TEST

START_TEST(key_that_was_settled_aside_before_its_claim_went_on_is_followed)
{
    lane_of(&claims[1], "a")->state = LANE_SETTLED; /* nothing of claims[1] is noted yet */
    miss(&claims[0], "a");
    ck_assert_uint_eq(stage.queue.keys.more.count, 1);
    ck_assert_ptr_eq(stage.queue.keys.more.entries[0].owner, &claims[1]);
}
END_TEST

START_TEST(key_that_a_lost_claim_had_is_followed_after_it)
{
    struct lane *lane = lost_lane(&claims[0], "a");
    miss(&claims[1], "a");
    ck_assert(lane->more);
}
END_TEST

START_TEST(key_of_another_relay_is_left_to_the_scan)
{
    struct lane *keyless = lane_of(&claims[1], NULL);
    miss(&claims[0], "a");
    miss(&claims[0], ""); /* has the hash of no key at all */
    ck_assert_uint_eq(stage.queue.keys.more.count, 0);
    ck_assert(!keyless->more);
}
END_TEST

static int64_t events_per_key(int64_t keys_locked, int64_t keys)
{
    stage.queue.claiming.keys_locked = keys_locked;
    return claim_request_make(&claims[0], false, keys, NOW)->events_per_key;
}

START_TEST(the_fewer_keys_the_more_events_of_each)
{
    ck_assert_int_eq(events_per_key(0, 256), 64); /* nothing is known: as if all came */
    ck_assert_int_eq(events_per_key(256, 256), 64);
    ck_assert_int_eq(events_per_key(128, 256), 128);
    ck_assert_int_eq(events_per_key(1, 256), 1000);
    ck_assert_int_eq(events_per_key(4096, 4096), 16);
    stage.config.max_events_per_key = 4;
    ck_assert_int_eq(events_per_key(1, 256), 4);
    ck_assert_int_eq(events_per_key(4096, 4096), 4);
}
END_TEST

START_TEST(events_that_go_one_by_one_do_not_keep_a_claim_open)
{
    sink.traits = 0;
    ck_assert_int_eq(events_per_key(1, 256), 64);
    ck_assert_int_eq(events_per_key(4096, 4096), 16);
    sink.traits = SINK_TAKES_RUNS;
    ck_assert_int_eq(events_per_key(1, 256), 1000);
}
END_TEST

START_TEST(one_event_of_each_key_is_asked_for_behind_a_slow_sink)
{
    stage.queue.ahead.behind_until = NOW + 1;
    ck_assert_int_eq(events_per_key(1, 256), 1);
    ck_assert(claim_request_make(&claims[0], false, 256, NOW)->behind);
    claims[0].full = true; /* nobody else can claim what follows of its keys */
    ck_assert_int_eq(events_per_key(1, 256), 1000);
    ck_assert(!claim_request_make(&claims[0], false, 256, NOW)->behind);
    claims[0].full = false;
    stage.queue.ahead.behind_until = NOW;
    ck_assert_int_eq(events_per_key(1, 256), 1000);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("claim_request");
    TCase *tcase = tcase_create("claim_request");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, keys_that_this_relay_is_busy_with_are_left_out);
    tcase_add_test(tcase, key_whose_lock_its_session_keeps_is_not_claimed_again);
    tcase_add_test(tcase, settled_key_of_a_kept_batch_is_anybodys);
    tcase_add_test(tcase, avoided_events_without_a_key_are_left_out);
    tcase_add_test(tcase, event_that_was_gone_and_whose_lock_its_session_keeps_is_left_out);
    tcase_add_test(tcase, event_that_was_gone_when_it_was_claimed_is_not_left_out);
    tcase_add_test(tcase, event_without_a_key_that_is_not_due_is_left_out_until_its_wait_is_written);
    tcase_add_test(tcase, key_is_not_taken_for_another_of_its_hash);
    tcase_add_test(tcase, any_number_of_keys_may_be_busy);
    tcase_add_test(tcase, half_of_a_claim_may_be_followed_keys);
    tcase_add_test(tcase, claim_of_one_key_may_be_a_followed_key_by_chance);
    tcase_add_test(tcase, claim_that_holds_as_many_locks_as_it_may_asks_only_for_its_own_keys);
    tcase_add_test(tcase, followed_key_is_asked_for_by_the_claim_that_can_have_it);
    tcase_add_test(tcase, followed_key_that_its_claim_is_busy_with_is_followed_after_it);
    tcase_add_test(tcase, claim_that_was_cut_short_follows_what_it_did_not_get);
    tcase_add_test(tcase, what_a_full_list_cannot_take_is_left_to_the_scan);
    tcase_add_test(tcase, followed_keys_are_a_reason_to_claim_only_for_who_can_have_them);
    tcase_add_test(tcase, followed_keys_that_every_claim_leaves_out_are_no_reason_to_claim);
    tcase_add_test(tcase, key_that_another_claim_of_ours_has_is_followed_by_that_claim);
    tcase_add_test(tcase, key_that_a_straggler_of_this_claim_has_is_followed_after_it);
    tcase_add_test(tcase, key_that_was_settled_aside_while_this_claim_asked_is_followed);
    tcase_add_test(tcase, locks_of_settled_lanes_count_until_the_transaction_ends_with_and_without_a_key);
    tcase_add_test(tcase, key_that_was_settled_aside_before_its_claim_went_on_is_followed);
    tcase_add_test(tcase, key_that_a_lost_claim_had_is_followed_after_it);
    tcase_add_test(tcase, key_of_another_relay_is_left_to_the_scan);
    tcase_add_test(tcase, the_fewer_keys_the_more_events_of_each);
    tcase_add_test(tcase, events_that_go_one_by_one_do_not_keep_a_claim_open);
    tcase_add_test(tcase, one_event_of_each_key_is_asked_for_behind_a_slow_sink);
    return run_suite(suite);
}
