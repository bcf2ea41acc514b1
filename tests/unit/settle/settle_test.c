/* Settlements of batches made by hand: what is written down, and what becomes of the lanes. */
#include "relay/settle/settle.h"

#include "relay/claim/claim.h"
#include "relay/route/route.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/hand_made.h"

#define NOW (10 * SECOND_US)

static struct stage stage;
static struct batch *batch;

static void set_up(void)
{
    stage_init(&stage, "there");
    batch = stage_batch(&stage);
}

static void tear_down(void)
{
    stage_done(&stage);
}

static struct settle_job *collect(bool prefixes)
{
    return settle_collect(&stage.queue, stage.claim.batches, prefixes);
}

static void commit(struct settle_job *job)
{
    settle_commit(&stage.queue, job, NOW);
    queue_hand_on(&stage.queue, NOW);
}

static void assert_done(const struct settle_job *job, size_t count, int64_t first)
{
    ck_assert_uint_eq(job->settlement.done_count, count);
    for (size_t i = 0; i < count; i++)
        ck_assert_int_eq(job->settlement.done[i], first + (int64_t)i);
}

START_TEST(acked_prefix_is_done_and_the_failure_behind_it_parked)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    lane->first->next->next->event.attempt = 2;
    stage_finish(lane, 2, LANE_RETRY);
    struct settle_job *job = collect(false);
    assert_done(job, 2, 1);
    ck_assert_uint_eq(job->settlement.parked_count, 1);
    const struct settle_failure *failure = job->settlement.parked;
    ck_assert_int_eq(failure->id, 3);
    ck_assert_int_eq(failure->attempts, 2);
    ck_assert_int_eq(failure->delay_us, 3 * SECOND_US);
    ck_assert_int_eq(failure->after_id, EVENT_NO_ID);
    ck_assert(span_equal(failure->key, span_of("a")));
    ck_assert(span_equal(failure->why, span_of("refused")));
    ck_assert_uint_eq(job->settlement.resumed_key_count, 0);
    commit(job);
    ck_assert_int_eq(lane->state, LANE_SETTLED);
    ck_assert_uint_eq(batch->unsettled, 0);
    ck_assert_uint_eq(stage.queue.metrics.retried, 1);
    ck_assert_uint_eq(stage.queue.metrics.settled, 2);
    ck_assert_uint_eq(stage.queue.keys.more.count, 0);
}
END_TEST

START_TEST(closed_key_waits_without_end)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 0, LANE_CLOSED);
    struct settle_job *job = collect(false);
    ck_assert_uint_eq(job->settlement.parked_count, 1);
    ck_assert_int_lt(job->settlement.parked[0].delay_us, 0);
    commit(job);
}
END_TEST

START_TEST(dead_event_is_buried_and_the_rest_of_its_key_followed)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 1, LANE_DEAD);
    struct settle_job *job = collect(false);
    assert_done(job, 1, 1);
    ck_assert_uint_eq(job->settlement.parked_count, 0);
    ck_assert_uint_eq(job->settlement.buried_count, 1);
    ck_assert_int_eq(job->settlement.buried[0].id, 2);
    commit(job);
    ck_assert_uint_eq(stage.queue.keys.more.count, 1);
    ck_assert(span_equal(stage.queue.keys.more.entries[0].key, span_of("a")));
    ck_assert_ptr_eq(stage.queue.keys.more.entries[0].owner, &stage.claim);
}
END_TEST

/* `done` has them behind what is done, for the question whether they are gone. */
START_TEST(each_dead_event_is_asked_after_behind_those_done)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 1, LANE_DEAD);
    stage_finish(stage_lane_of_three(batch, 10, "b"), 2, LANE_DEAD);
    stage_finish(stage_lane_of_three(batch, 20, "c"), 0, LANE_DEAD);
    struct settle_job *job = collect(false);
    const struct settlement *s = &job->settlement;
    ck_assert_uint_eq(s->done_count, 3);
    ck_assert_uint_eq(s->buried_count, 3);
    for (size_t i = 0; i < 3; i++)
        ck_assert_int_eq(s->done[s->done_count + i], s->buried[i].id);
    ck_assert_int_eq(s->buried[0].id + s->buried[1].id + s->buried[2].id, 2 + 12 + 20);
    commit(job);
}
END_TEST

START_TEST(key_with_more_events_is_followed_by_the_claim_that_holds_it)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    lane->more = true;
    stage_finish(lane, 3, LANE_DELIVERED);
    stage_finish(stage_lane_of_three(batch, 10, "b"), 3, LANE_DELIVERED);
    commit(collect(false));
    ck_assert_uint_eq(stage.queue.keys.more.count, 1);
    ck_assert_ptr_eq(stage.queue.keys.more.entries[0].owner, &stage.claim);
}
END_TEST

START_TEST(key_that_has_waited_is_asked_for_once_more)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    lane->waited = true;
    stage_finish(lane, 3, LANE_DELIVERED);
    commit(collect(false));
    ck_assert_uint_eq(stage.queue.keys.more.count, 1);
    ck_assert(span_equal(stage.queue.keys.more.entries[0].key, span_of("a")));
}
END_TEST

START_TEST(full_follow_list_falls_back_on_the_scan)
{
    for (uint64_t i = 0; i < stage.queue.keys.more.max; i++)
        ck_assert(keyset_put(&stage.queue.keys.more, (struct span){(char *)&i, sizeof i}, i, 0, NULL));
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    lane->more = true;
    stage_finish(lane, 3, LANE_DELIVERED);
    commit(collect(false));
    ck_assert_int_le(stage.noting.released.lo, 4);
    ck_assert_int_eq(stage.noting.released.hi, SCAN_ID_MAX);
    /* What is behind a dead letter was claimed and is not in the table's unseen part. */
    stage_finish(stage_lane_of_three(batch, 10, "b"), 1, LANE_DEAD);
    commit(collect(false));
    ck_assert_int_le(stage.noting.released.lo, 12);
    ck_assert_int_ge(stage.noting.released.hi, 12);
}
END_TEST

START_TEST(what_is_given_back_is_looked_at_again_and_its_key_avoided_meanwhile)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    lane->release_us = 5 * SECOND_US;
    stage_finish(lane, 1, LANE_RELEASED);
    struct settle_job *job = collect(false);
    assert_done(job, 1, 1);
    ck_assert_uint_eq(job->settlement.parked_count + job->settlement.buried_count, 0);
    commit(job);
    ck_assert_uint_eq(stage.noting.released_count, 1);
    ck_assert_int_eq(stage.noting.released.lo, 2);
    ck_assert_int_eq(stage.noting.released.hi, 3);
    ck_assert_int_eq(stage.noting.released_at, NOW + 5 * SECOND_US);
    ck_assert_uint_eq(stage.queue.keys.destination_down.count, 1);
    ck_assert_int_eq(stage.queue.keys.destination_down.entries[0].at, NOW + 5 * SECOND_US);
}
END_TEST

START_TEST(event_without_a_key_is_avoided_too)
{
    struct lane *lane = stage_event(batch, 7, NULL)->lane;
    lane->release_us = 5 * SECOND_US;
    stage_finish(lane, 0, LANE_RELEASED);
    commit(collect(false));
    int64_t id = 7;
    ck_assert_uint_eq(stage.queue.keys.destination_down.count, 0);
    ck_assert_uint_eq(stage.queue.keys.destination_down_ids.count, 1);
    ck_assert_mem_eq(stage.queue.keys.destination_down_ids.entries[0].key.data, &id, sizeof id);
    ck_assert_int_eq(stage.queue.keys.destination_down_ids.entries[0].at, NOW + 5 * SECOND_US);
}
END_TEST

START_TEST(new_events_do_not_wait_long_when_more_is_given_back_than_can_be_avoided)
{
    for (int64_t id = 1; id <= 9; id++) {
        struct lane *lane = stage_event(batch, id, (char[]){(char)('a' + id), 0})->lane;
        lane->release_us = 3600 * SECOND_US;
        stage_finish(lane, 0, LANE_RELEASED);
    }
    commit(collect(false));
    ck_assert_uint_eq(stage.queue.keys.destination_down.count, stage.queue.keys.destination_down.max);
    ck_assert_int_eq(stage.queue.pace.poll_at, NOW + stage.config.poll_max_us);
}
END_TEST

/* ---- keys that waited ---- */

START_TEST(wait_ends_when_the_head_is_gone)
{
    static const struct {
        size_t acked;
        enum lane_outcome outcome;
        size_t resumed;
    } rows[] = {
        {3, LANE_DELIVERED, 1}, {1, LANE_RELEASED, 1}, {0, LANE_RELEASED, 0}, /* the head is still there */
        {0, LANE_DEAD, 1},      {1, LANE_DEAD, 1},     {1, LANE_RETRY, 0},    /* the failure writes the entry anew */
        {0, LANE_CLOSED, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct lane *lane = stage_lane_of_three(batch, (int64_t)i * 10, (char[]){(char)('a' + i), 0});
        lane->waited = true;
        stage_finish(lane, rows[i].acked, rows[i].outcome);
        struct settle_job *job = collect(false);
        ck_assert_msg(job->settlement.resumed_key_count == rows[i].resumed, "row %zu", i);
        commit(job);
    }
}
END_TEST

START_TEST(key_that_did_not_wait_is_not_resumed)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 3, LANE_DELIVERED);
    struct settle_job *job = collect(false);
    ck_assert_uint_eq(job->settlement.resumed_key_count, 0);
    commit(job);
}
END_TEST

START_TEST(event_without_a_key_waits_and_resumes_by_its_id)
{
    struct lane *lane = stage_event(batch, 7, NULL)->lane;
    lane->waited = true;
    stage_finish(lane, 1, LANE_DELIVERED);
    struct settle_job *job = collect(false);
    ck_assert_uint_eq(job->settlement.resumed_key_count, 0);
    ck_assert_uint_eq(job->settlement.resumed_keyless_count, 1);
    ck_assert_int_eq(job->settlement.resumed_keyless_ids[0], 7);
    commit(job);
}
END_TEST

/* Its row, and then its wait. */
START_TEST(event_without_a_key_that_is_settled_in_parts_resumes_by_its_id)
{
    struct lane *lane = stage_event(batch, 7, NULL)->lane;
    lane->waited = true;
    stage_finish(lane, 1, LANE_DELIVERED);
    batch->halving.most = 1;
    struct settle_job *job = collect(false);
    assert_done(job, 1, 7);
    ck_assert_uint_eq(job->settlement.resumed_keyless_count, 0);
    commit(job);
    job = collect(false);
    assert_done(job, 0, 0);
    ck_assert_uint_eq(job->settlement.resumed_keyless_count, 1);
    ck_assert_int_eq(job->settlement.resumed_keyless_ids[0], 7);
    commit(job);
    ck_assert_int_eq(lane->state, LANE_SETTLED);
}
END_TEST

/* A row that is not where it was read has its settlement refused: whatever is refused itself is looked for by ids. */
START_TEST(places_are_named_where_rows_have_them_and_nothing_is_refused)
{
    enum { HAVE_PLACES, HAVE_NONE, HALVED, MOVED, LOST };
    stage_finish(stage_lane_of_three(batch, 1, "a"), 3, LANE_DELIVERED);
    stage.queue.ordering->places = _i != HAVE_NONE;
    batch->halving.most = _i == HALVED ? 2 : 0;
    stage.queue.refusal.go_by_id = _i == MOVED;
    batch->hold = _i == LOST ? HOLD_LOST : batch->hold;
    struct settle_job *job = collect(false);
    ck_assert_int_eq(job->settlement.tids != NULL, _i == HAVE_PLACES);
    commit(job);
}
END_TEST

START_TEST(wait_for_an_event_that_is_gone_is_over)
{
    batch_add_ended_wait(batch, span_of("a"), 5);
    batch_add_ended_wait(batch, (struct span){NULL, 0}, 6);
    ck_assert(claim_is_finished(&stage.claim));
    route_claimed(&stage.queue); /* there is nothing to deliver */
    struct settle_job *job = collect(false);
    ck_assert_uint_eq(job->settlement.done_count, 0);
    ck_assert_uint_eq(job->settlement.resumed_key_count, 1);
    ck_assert(span_equal(job->settlement.resumed_keys[0], span_of("a")));
    ck_assert(job->settlement.resumed_keyless_count == 1 && job->settlement.resumed_keyless_ids[0] == 6);
    commit(job);
    ck_assert_uint_eq(batch->unsettled, 0);
}
END_TEST

/* ---- ahead of the end ---- */

START_TEST(prefix_is_settled_once_ahead_of_the_end)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    ck_assert_ptr_null(collect(false));
    ck_assert_ptr_null(collect(true));
    stage_ack(lane, 2);
    ck_assert_ptr_null(collect(false));
    struct settle_job *job = collect(true);
    assert_done(job, 2, 1);
    ck_assert_ptr_null(collect(true));
    commit(job);
    ck_assert_int_eq(lane->state, LANE_OPEN);
    ck_assert_int_eq(lane->first->event.id, 3);
    ck_assert_ptr_null(collect(true));
    stage_finish(lane, 1, LANE_DELIVERED);
    job = collect(false);
    assert_done(job, 1, 3);
    commit(job);
    ck_assert_uint_eq(batch->unsettled, 0);
}
END_TEST

START_TEST(lane_that_ends_while_its_prefix_is_on_the_way_keeps_the_claim_open)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    stage_ack(lane, 1);
    struct settle_job *job = collect(true);
    stage_finish(lane, 1, LANE_RETRY);
    ck_assert_ptr_null(collect(false));
    ck_assert(!claim_is_finished(&stage.claim)); /* a COMMIT now would let go of a lock that is still needed */
    commit(job);
    ck_assert(claim_is_finished(&stage.claim));
    job = collect(false);
    assert_done(job, 1, 2);
    ck_assert_uint_eq(job->settlement.parked_count, 1);
    commit(job);
    ck_assert(claim_is_finished(&stage.claim));
}
END_TEST

START_TEST(key_whose_head_was_settled_ahead_of_the_end_still_resumes)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    lane->waited = true;
    stage_ack(lane, 1);
    struct settle_job *job = collect(true);
    ck_assert_uint_eq(job->settlement.resumed_key_count, 0);
    commit(job);
    stage_finish(lane, 0, LANE_RELEASED);
    job = collect(false);
    ck_assert_uint_eq(job->settlement.resumed_key_count, 1);
    commit(job);
}
END_TEST

START_TEST(aborted_settlement_is_collected_again_as_it_was)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a"), *open = stage_lane_of_three(batch, 10, "b");
    stage_finish(lane, 2, LANE_RETRY);
    stage_ack(open, 1);
    for (int i = 0; i < 2; i++) {
        struct settle_job *job = collect(true);
        ck_assert_uint_eq(job->settlement.done_count, 3);
        ck_assert_uint_eq(job->settlement.parked_count, 1);
        ck_assert(!claim_is_finished(&stage.claim));
        settle_abort(job);
    }
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_uint_eq(batch->finished, 1);
    ck_assert_uint_eq(batch->unsettled, 2);
}
END_TEST

/* ---- lost claims ---- */

START_TEST(lost_lane_settles_what_was_acked_and_nothing_else)
{
    struct lane *failed = stage_lane_of_three(batch, 1, "a"), *dead = stage_lane_of_three(batch, 10, "b");
    failed->waited = dead->waited = true;
    stage_finish(failed, 2, LANE_RETRY);
    stage_finish(dead, 0, LANE_DEAD);
    stage_lose(&stage);
    struct settle_job *job = settle_collect(&stage.queue, stage.queue.holds.orphans, false);
    assert_done(job, 2, 1);
    const struct settlement *s = &job->settlement;
    ck_assert_uint_eq(s->parked_count + s->buried_count + s->resumed_key_count + s->resumed_keyless_count, 0);
    commit(job);
    ck_assert_uint_eq(stage.queue.metrics.released, 2);
    ck_assert_uint_eq(stage.noting.released_count, 2);
    ck_assert_uint_eq(batch->unsettled, 0);
}
END_TEST

START_TEST(lost_key_with_more_events_is_followed_by_any_claim)
{
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    lane->more = true;
    stage_finish(lane, 3, LANE_DELIVERED);
    stage_lose(&stage);
    commit(settle_collect(&stage.queue, stage.queue.holds.orphans, false));
    ck_assert_uint_eq(stage.queue.keys.more.count, 1);
    ck_assert_ptr_null(stage.queue.keys.more.entries[0].owner);
}
END_TEST

/* ---- bookkeeping ---- */

START_TEST(settlement_with_nothing_to_write_is_empty)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 0, LANE_RELEASED);
    struct settle_job *job = collect(false);
    ck_assert(settle_is_empty(job));
    commit(job);
}
END_TEST

START_TEST(batch_is_freed_when_its_last_lane_is_settled)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 3, LANE_DELIVERED);
    struct lane *open = stage_lane_of_three(batch, 10, "b");
    commit(collect(false));
    settle_free_batches(&stage.claim.batches);
    ck_assert_ptr_eq(stage.claim.batches, batch);
    stage_finish(open, 3, LANE_DELIVERED);
    commit(collect(false));
    stage.queue.arrived = NULL;
    settle_free_batches(&stage.claim.batches);
    ck_assert_ptr_null(stage.claim.batches);
}
END_TEST

START_TEST(events_that_were_gone_are_counted)
{
    stage_finish(stage_lane_of_three(batch, 1, "a"), 3, LANE_DELIVERED);
    struct settle_job *job = collect(false);
    job->missing = 2;
    commit(job);
    ck_assert_uint_eq(stage.queue.metrics.missing, 2);
}
END_TEST

START_TEST(next_queue_is_woken_by_what_goes_on_to_it)
{
    struct queue next = {.config = &stage.config, .pace = {.poll_at = INSTANT_NEVER, .claim_by = INSTANT_NEVER}};
    stage.queue.next = &next;
    stage_finish(stage_lane_of_three(batch, 1, "a"), 0, LANE_RELEASED);
    commit(collect(false));
    ck_assert_int_eq(next.pace.poll_at, INSTANT_NEVER);
    stage_finish(stage_lane_of_three(stage_batch(&stage), 4, "b"), 3, LANE_DELIVERED);
    commit(collect(false));
    ck_assert_int_lt(next.pace.poll_at, INSTANT_NEVER);
    ck_assert_int_lt(next.pace.claim_by, INSTANT_NEVER);
}
END_TEST

START_TEST(answers_go_on_with_what_they_are_answers_to)
{
    stage.config.response_max = 10;
    struct lane *lane = stage_lane_of_three(batch, 1, "a");
    for (struct item *item = lane->first; item; item = item->next)
        item->delivery.response = response_new(batch->arena, 10);
    response_add(lane->last->delivery.response, span_of("{}"));
    stage_finish(lane, 3, LANE_DELIVERED);
    struct settle_job *job = collect(false);
    assert_done(job, 3, 1);
    ck_assert_ptr_null(job->settlement.responses[0].data);
    ck_assert(span_equal(job->settlement.responses[2], span_of("{}")));
    commit(job);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("settle");
    TCase *tcase = tcase_create("settle");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, acked_prefix_is_done_and_the_failure_behind_it_parked);
    tcase_add_test(tcase, closed_key_waits_without_end);
    tcase_add_test(tcase, dead_event_is_buried_and_the_rest_of_its_key_followed);
    tcase_add_test(tcase, each_dead_event_is_asked_after_behind_those_done);
    tcase_add_test(tcase, key_with_more_events_is_followed_by_the_claim_that_holds_it);
    tcase_add_test(tcase, key_that_has_waited_is_asked_for_once_more);
    tcase_add_test(tcase, full_follow_list_falls_back_on_the_scan);
    tcase_add_test(tcase, what_is_given_back_is_looked_at_again_and_its_key_avoided_meanwhile);
    tcase_add_test(tcase, event_without_a_key_is_avoided_too);
    tcase_add_test(tcase, new_events_do_not_wait_long_when_more_is_given_back_than_can_be_avoided);
    tcase_add_test(tcase, wait_ends_when_the_head_is_gone);
    tcase_add_test(tcase, key_that_did_not_wait_is_not_resumed);
    tcase_add_test(tcase, event_without_a_key_waits_and_resumes_by_its_id);
    tcase_add_test(tcase, event_without_a_key_that_is_settled_in_parts_resumes_by_its_id);
    tcase_add_loop_test(tcase, places_are_named_where_rows_have_them_and_nothing_is_refused, 0, 5);
    tcase_add_test(tcase, wait_for_an_event_that_is_gone_is_over);
    tcase_add_test(tcase, prefix_is_settled_once_ahead_of_the_end);
    tcase_add_test(tcase, lane_that_ends_while_its_prefix_is_on_the_way_keeps_the_claim_open);
    tcase_add_test(tcase, key_whose_head_was_settled_ahead_of_the_end_still_resumes);
    tcase_add_test(tcase, aborted_settlement_is_collected_again_as_it_was);
    tcase_add_test(tcase, lost_lane_settles_what_was_acked_and_nothing_else);
    tcase_add_test(tcase, lost_key_with_more_events_is_followed_by_any_claim);
    tcase_add_test(tcase, settlement_with_nothing_to_write_is_empty);
    tcase_add_test(tcase, batch_is_freed_when_its_last_lane_is_settled);
    tcase_add_test(tcase, events_that_were_gone_are_counted);
    tcase_add_test(tcase, next_queue_is_woken_by_what_goes_on_to_it);
    tcase_add_test(tcase, answers_go_on_with_what_they_are_answers_to);
    return run_suite(suite);
}
