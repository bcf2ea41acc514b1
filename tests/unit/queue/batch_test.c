#include "relay/queue/batch.h"

#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

static struct batch *batch;

static void set_up(void)
{
    batch = batch_new(4096, NULL, NULL);
}

static void tear_down(void)
{
    batch_free(batch);
}

static bool add(int64_t id, const char *key, size_t payload_bytes)
{
    static const char bytes[8192];
    struct error err;
    struct event event = {.id = id, .key = span_of(key), .payload = {bytes, payload_bytes}};
    return batch_add(batch, &event, 0, &err);
}

START_TEST(events_of_a_key_share_a_lane_in_order)
{
    ck_assert(add(1, "a", 0) && add(5, "a", 0) && add(2, "b", 0));
    ck_assert_uint_eq(batch->lane_count, 2);
    ck_assert_uint_eq(batch->lanes->count, 2);
    ck_assert_int_eq(batch->lanes->first->event.id, 1);
    ck_assert_int_eq(batch->lanes->first->next->event.id, 5);
    ck_assert_int_eq(batch->lanes->last->event.id, 5);
    ck_assert_ptr_eq(batch->lanes->unsent, batch->lanes->first);
    ck_assert_uint_eq(batch->open, 2);
    ck_assert_uint_eq(batch->unsettled, 2);
}
END_TEST

static struct lane *find(const char *key, enum lane_state last)
{
    return batch_find(batch, span_of(key), span_hash(span_of(key)), last);
}

static bool is_in_its_chain(const struct lane *lane)
{
    const struct lane *found = batch_chain(batch, lane->hash);
    while (found && found != lane)
        found = found->chain_next;
    return found != NULL;
}

START_TEST(lane_is_in_the_chain_of_its_hash_with_and_without_a_key)
{
    ck_assert(add(1, "a", 0) && add(2, NULL, 0) && add(3, NULL, 0) && add(4, "", 0));
    batch_add_ended_wait(batch, (struct span){NULL, 0}, 5);
    batch_add_delayed(batch, (struct span){NULL, 0}, 6, 500);
    ck_assert_uint_eq(batch->lane_count, 6);
    for (const struct lane *lane = batch->lanes; lane; lane = lane->next) {
        ck_assert(is_in_its_chain(lane));
        if (lane->next && !lane->key.data && !lane->next->key.data)
            ck_assert_uint_ne(lane->hash, lane->next->hash);
    }
    ck_assert_uint_eq(batch_unsettled(batch), 6);
}
END_TEST

START_TEST(event_without_a_key_is_repeated_by_its_id_alone)
{
    struct batch *earlier = batch;
    ck_assert(add(7, NULL, 0) && add(8, "", 0));
    batch = batch_new(4096, NULL, NULL);
    batch_add_ended_wait(batch, (struct span){NULL, 0}, 7);
    batch_add_ended_wait(batch, (struct span){NULL, 0}, 8);
    ck_assert(lane_repeats(batch->lanes, earlier->lanes, 0));
    ck_assert_uint_eq(batch->lanes->hash, earlier->lanes->hash);
    ck_assert(!lane_repeats(batch->lanes_end, earlier->lanes, 0));
    ck_assert(!lane_repeats(batch->lanes_end, earlier->lanes_end, 0));
    batch_free(batch);
    batch = earlier;
}
END_TEST

START_TEST(lane_is_found_by_its_key_and_state_among_many)
{
    char key[8];
    batch->bytes_max = SIZE_MAX;
    for (int id = 0; id < 3 * LANE_CHAINS; id++) {
        snprintf(key, sizeof key, "k%d", id);
        ck_assert(add(id, key, 0) && add(1000 + id, NULL, 0));
    }
    for (int id = 0; id < 3 * LANE_CHAINS; id++) {
        snprintf(key, sizeof key, "k%d", id);
        ck_assert_int_eq(find(key, LANE_OPEN)->first->event.id, id);
    }
    ck_assert_ptr_null(find("k", LANE_SETTLED));
    ck_assert_ptr_null(find(NULL, LANE_SETTLED));
    find("k7", LANE_OPEN)->state = LANE_FINISHED;
    ck_assert_ptr_null(find("k7", LANE_STOPPED));
    ck_assert_int_eq(find("k7", LANE_FINISHED)->first->event.id, 7);
}
END_TEST

START_TEST(event_that_comes_out_of_order_is_refused)
{
    ck_assert(add(5, "a", 0));
    ck_assert(!add(5, "a", 0));
    ck_assert(!add(4, "a", 0));
    ck_assert(add(4, "b", 0));
}
END_TEST

START_TEST(events_without_a_key_have_a_lane_each)
{
    ck_assert(add(9, NULL, 0) && add(3, NULL, 0) && add(10, "", 0) && add(11, "", 0) && add(12, NULL, 0));
    ck_assert_uint_eq(batch->lane_count, 4);
    ck_assert_uint_eq(batch->lanes_end->count, 1);
}
END_TEST

START_TEST(keyless_events_have_a_lane_each_and_keep_their_keys)
{
    batch->keyless = true;
    ck_assert(add(9, "a", 0) && add(3, "a", 0) && add(4, NULL, 0));
    ck_assert_uint_eq(batch->lane_count, 3);
    ck_assert_ptr_null(batch->lanes->key.data);
    ck_assert(span_equal(batch->lanes->first->event.key, SPAN_LITERAL("a")));
    ck_assert_ptr_null(batch->lanes_end->first->event.key.data);
    ck_assert_int_eq(lane_keyless_id(batch->lanes), 9);
}
END_TEST

START_TEST(key_has_no_more_events_than_it_may)
{
    batch->lane_max = 2;
    ck_assert(add(1, "a", 0) && add(2, "a", 0) && !batch->lanes->more);
    ck_assert(add(3, "a", 0) && add(4, "b", 0));
    ck_assert_uint_eq(batch->lanes->count, 2);
    ck_assert(batch->lanes->more && !batch->spilled && !batch->lanes_end->more);
    ck_assert_uint_eq(batch->event_count, 3);
}
END_TEST

START_TEST(first_event_always_fits)
{
    ck_assert(add(1, "a", 8000));
    ck_assert_uint_eq(batch->event_count, 1);
    ck_assert(!batch->spilled);
}
END_TEST

START_TEST(full_batch_leaves_events_out_and_says_so)
{
    ck_assert(add(1, "a", 3000));
    ck_assert(add(2, "a", 3000));
    ck_assert(batch->spilled);
    ck_assert(batch->lanes->more);
    ck_assert_uint_eq(batch->event_count, 1);
    /* Nothing goes in after that, however small: it could be a later event of a key that was left out. */
    ck_assert(add(3, "a", 1) && add(4, "b", 1));
    ck_assert_uint_eq(batch->event_count, 1);
    ck_assert_uint_eq(batch->lane_count, 1);
}
END_TEST

START_TEST(answers_that_may_come_take_their_room_beforehand)
{
    batch->response_max = 1500;
    ck_assert(add(1, "a", 1));
    ck_assert(add(2, "b", 1));
    ck_assert(add(3, "c", 1));
    ck_assert(batch->spilled);
    ck_assert_uint_eq(batch->event_count, 2);
    ck_assert_uint_gt(batch->bytes, 3000);
}
END_TEST

START_TEST(events_are_copied_with_their_columns)
{
    char key[] = "key", payload[] = "pay\0load", column[] = "col";
    struct span columns[] = {{column, 3}, {NULL, 0}};
    struct event event = {.id = 1, .key = {key, 3}, .payload = {payload, 8}, .columns = columns};
    struct error err;
    ck_assert(batch_add(batch, &event, 2, &err));
    memset(key, 'x', 3);
    memset(payload, 'x', 8);
    memset(column, 'x', 3);
    const struct event *copy = &batch->lanes->first->event;
    ck_assert(span_equal(copy->key, SPAN_LITERAL("key")));
    ck_assert(span_equal(copy->payload, SPAN_LITERAL("pay\0load")));
    ck_assert(span_equal(copy->columns[0], SPAN_LITERAL("col")));
    ck_assert_ptr_null(copy->columns[1].data);
    ck_assert_ptr_null(copy->headers.data);
}
END_TEST

START_TEST(event_that_is_not_due_ends_its_lane)
{
    ck_assert(add(1, "a", 0));
    batch_add_delayed(batch, SPAN_LITERAL("a"), 2, 500);
    batch_add_delayed(batch, SPAN_LITERAL("a"), 3, 900);
    ck_assert(add(4, "a", 0));
    const struct lane *lane = batch->lanes;
    ck_assert(lane->delayed && !lane->more);
    ck_assert_uint_eq(lane->count, 1);
    ck_assert_int_eq(lane->state, LANE_OPEN);
    ck_assert_int_eq(lane->waited_id, 2);
    ck_assert_int_eq(lane->delay_us, 500);
}
END_TEST

START_TEST(event_that_is_not_due_behind_one_that_was_left_out_is_left_out)
{
    batch->lane_max = 1;
    ck_assert(add(1, "a", 0) && add(2, "a", 0));
    batch_add_delayed(batch, SPAN_LITERAL("a"), 3, 500);
    ck_assert(batch->lanes->more && !batch->lanes->delayed);
}
END_TEST

/* "b" 2 is due and did not fit: to let "b" wait for 3 would be to let 2 wait as well. */
START_TEST(event_that_is_not_due_of_a_key_that_did_not_fit_is_left_out)
{
    ck_assert(add(1, "a", 3000) && add(2, "b", 3000) && batch->spilled);
    batch_add_delayed(batch, SPAN_LITERAL("b"), 3, -1);
    ck_assert_uint_eq(batch->lane_count, 1);
}
END_TEST

START_TEST(key_whose_head_is_not_due_is_a_finished_lane)
{
    batch_add_delayed(batch, SPAN_LITERAL("a"), 2, 500);
    ck_assert(add(3, "a", 0));
    batch_add_delayed(batch, (struct span){NULL, 0}, 4, -1);
    ck_assert_uint_eq(batch->lane_count, 2);
    ck_assert_uint_eq(batch->event_count, 0);
    ck_assert_uint_eq(batch->finished, 2);
    ck_assert_int_eq(lane_keyless_id(batch->lanes_end), 4);
}
END_TEST

START_TEST(key_that_has_nothing_left_is_a_finished_lane)
{
    batch_add_ended_wait(batch, SPAN_LITERAL("a"), 7);
    ck_assert_uint_eq(batch->open, 0);
    ck_assert_uint_eq(batch->finished, 1);
    ck_assert_uint_eq(batch->unsettled, 1);
    ck_assert(batch->lanes->waited);
    ck_assert(add(8, "b", 0));
    ck_assert_uint_eq(batch->open, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("batch");
    TCase *tcase = tcase_create("batch");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, events_of_a_key_share_a_lane_in_order);
    tcase_add_test(tcase, lane_is_in_the_chain_of_its_hash_with_and_without_a_key);
    tcase_add_test(tcase, event_without_a_key_is_repeated_by_its_id_alone);
    tcase_add_test(tcase, lane_is_found_by_its_key_and_state_among_many);
    tcase_add_test(tcase, event_that_comes_out_of_order_is_refused);
    tcase_add_test(tcase, events_without_a_key_have_a_lane_each);
    tcase_add_test(tcase, keyless_events_have_a_lane_each_and_keep_their_keys);
    tcase_add_test(tcase, key_has_no_more_events_than_it_may);
    tcase_add_test(tcase, first_event_always_fits);
    tcase_add_test(tcase, full_batch_leaves_events_out_and_says_so);
    tcase_add_test(tcase, answers_that_may_come_take_their_room_beforehand);
    tcase_add_test(tcase, events_are_copied_with_their_columns);
    tcase_add_test(tcase, event_that_is_not_due_ends_its_lane);
    tcase_add_test(tcase, event_that_is_not_due_behind_one_that_was_left_out_is_left_out);
    tcase_add_test(tcase, event_that_is_not_due_of_a_key_that_did_not_fit_is_left_out);
    tcase_add_test(tcase, key_whose_head_is_not_due_is_a_finished_lane);
    tcase_add_test(tcase, key_that_has_nothing_left_is_a_finished_lane);
    return run_suite(suite);
}
