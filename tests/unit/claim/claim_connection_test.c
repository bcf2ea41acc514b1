/* Rounds of a claim that cannot be sent, that bring what they must not, or that meet what a lost claim left behind; and
 * when there is none. */
#include "relay/claim/claim_request.h"
#include "relay/claim/claim_send.h"
#include "sql_text.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/claim_stage.h"

static void claim_keys(void)
{
    claim_send_round(claim, NULL, true, KEYS, NOW);
}

static void claim_brings(const struct event *events, size_t count)
{
    returned = events;
    returned_count = count;
    script_brings_results();
}

/* A lane that its claim has lost. */
static struct lane *lost_lane(int64_t id, const char *key)
{
    struct lane *lane = stage_event(stage_batch(&stage), id, key)->lane;
    stage.queue.arrived = NULL;
    stage_lose(&stage);
    return lane;
}

/* ---- what cannot be sent ---- */

/* Settles one acked event and claims anew. */
static struct lane *settle_and_claim(void)
{
    struct batch *batch = stage_batch(&stage);
    struct lane *lane = stage_event(batch, 1, "a")->lane;
    stage.queue.arrived = NULL;
    lane->state = LANE_FINISHED;
    lane->acked = 1;
    batch->open--;
    batch->finished++;
    claim_send_round(claim, settle_collect(&stage.queue, claim->batches, false), true, KEYS, NOW);
    return lane;
}

START_TEST(round_that_cannot_be_sent_drops_the_connection_and_keeps_what_it_was_to_settle)
{
    settle_and_claim();
    for (size_t statements = script.sends; statements > 0; statements--) {
        tear_down();
        set_up();
        script.fails_at = statements;
        struct lane *lane = settle_and_claim();
        bool asked = script_index("claim") < script.sends;
        ck_assert_uint_eq(script.sends, script.fails_at); /* nothing goes behind what did not */
        ck_assert_str_eq(script.drop_reason, "cannot be sent");
        script_brings(DB_DOWN);
        progress();
        ck_assert_int_eq(claim->state, CLAIM_OFF);
        ck_assert_int_eq(lane->state, LANE_FINISHED); /* the ack is still to be written down */
        ck_assert_ptr_eq(stage.queue.holds.orphans, lane->batch);
        ck_assert_uint_eq(failed_claims, asked ? 1 : 0);
        ck_assert_ptr_null(claim->arriving);
        ck_assert_int_gt(claim->retry_at, NOW);
    }
}
END_TEST

START_TEST(rollback_that_cannot_be_sent_drops_the_connection)
{
    claim_keys();
    script.fails_at = script.sends + (size_t)_i;
    script_brings_result(0, PGRES_FATAL_ERROR);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_int_eq(claim->state, CLAIM_ROLLBACK);
    ck_assert_str_eq(script.drop_reason, "cannot be sent");
    script_brings(DB_DOWN);
    progress();
    ck_assert_int_eq(claim->state, CLAIM_OFF);
    ck_assert(!claim->in_transaction);
}
END_TEST

START_TEST(answer_to_a_rollback_makes_the_connection_idle)
{
    claim_keys();
    script_brings_result(0, PGRES_FATAL_ERROR);
    script_brings(DB_ROUND_END);
    script_brings_result(0, PGRES_COMMAND_OK);
    progress();
    ck_assert_int_eq(claim->state, CLAIM_ROLLBACK);
    ck_assert_uint_eq(failed_claims, 1);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_int_eq(claim->state, CLAIM_IDLE);
    ck_assert(!claim->in_transaction);
}
END_TEST

/* ---- what comes back ---- */

START_TEST(transaction_in_a_session_that_is_shared_is_let_last_before_it_claims)
{
    const struct event events[] = {event_of(1, "a")};
    script.shared = true;
    claim_keys();
    ck_assert_str_eq(script.sent[script_index(sql_claim_begin) + 1], sql_session_transaction);
    ck_assert_str_eq(script.sent[script_index(sql_claim_begin) + 2], "claim");
    claim_brings(events, 1);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_uint_eq(claim->batches->event_count, 1);
}
END_TEST

START_TEST(keys_that_are_leased_need_no_transaction_that_lasts)
{
    script.shared = stage.queue.leases.used = true;
    claim_keys();
    ck_assert_uint_eq(script_index(sql_session_transaction), script.sends);
}
END_TEST

START_TEST(first_failure_of_a_round_is_the_one_that_counts)
{
    struct lane *lane = settle_and_claim();
    script_brings_result(script_index("settle"), PGRES_FATAL_ERROR);
    script_brings_result(script_index("commit"), PGRES_PIPELINE_ABORTED);
    script_brings_result(script_index("claim"), PGRES_FATAL_ERROR); /* the connection, on top of it */
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_uint_eq(lane->acked, 1);
}
END_TEST

START_TEST(claim_out_of_order_is_given_up_whatever_follows_it)
{
    const struct event events[] = {event_of(2, "a"), event_of(1, "a")};
    claim_keys();
    claim_brings(events, 2);
    script_brings_result(script_index("end"), PGRES_COMMAND_OK);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_int_eq(claim->state, CLAIM_ROLLBACK);
    ck_assert_ptr_null(stage.queue.arrived);
    ck_assert_ptr_null(claim->batches);
    ck_assert_uint_eq(failed_claims, 1);
}
END_TEST

START_TEST(wait_of_a_key_is_noted_in_its_lane)
{
    const struct event events[] = {event_of(1, "a")};
    returned_waited = 1;
    claim_keys();
    claim_brings(events, 1);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_int_eq(claim->state, CLAIM_IDLE);
    ck_assert(stage.queue.arrived->lanes->waited);
    ck_assert(!stage.queue.arrived->lanes->more);
}
END_TEST

START_TEST(wait_of_an_event_that_is_left_out_is_not_noted_in_the_lane_before_it)
{
    static const char *const keys[][2] = {{NULL, NULL}, {"", NULL}, {NULL, ""}, {"a", "b"}};
    const struct event events[] = {event_of(1, keys[_i][0]), event_of(2, keys[_i][1])};
    stage.config.max_batch_bytes = 1;
    returned_waited = 2;
    claim_keys();
    claim_brings(events, 2);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_uint_eq(stage.queue.arrived->lane_count, 1);
    ck_assert(stage.queue.arrived->spilled);
    ck_assert(!stage.queue.arrived->lanes->waited);
}
END_TEST

/* Rows that come as fast as they are read. */
START_TEST(no_more_than_a_few_batches_are_read_in_one_turn)
{
    static char payload[3 << 20];
    struct event event = event_of(1, NULL);
    event.payload = (struct span){payload, sizeof payload};
    struct pollset *ps = pollset_new();
    claim_keys();
    returned = &event;
    returned_count = 1;
    for (size_t i = 0; i < 12; i++)
        script_brings_result(script_index("claim"), PGRES_SINGLE_TUPLE);
    script_brings_result(script_index("claim"), PGRES_TUPLES_OK);
    script_brings(DB_ROUND_END);
    size_t turns = 0;
    for (; claim->state == CLAIM_BUSY; turns++) {
        size_t before = script.event_next;
        progress();
        ck_assert_uint_le(script.event_next - before, 5);
        pollset_clear(ps);
        claim_prepare(&stage.queue, ps, NOW);
        ck_assert(claim->state != CLAIM_BUSY || pollset_next_deadline(ps) == 0); /* what has come is read next */
    }
    ck_assert_uint_gt(turns, 2);
    ck_assert(!claim->unread);
    ck_assert_uint_eq(stage.queue.arrived->event_count, 1);
    ck_assert_int_eq(claim->plan.room, 1);
    pollset_free(ps);
}
END_TEST

static const struct {
    const char *last_key;
    bool more;
} cut[] = {{"b", true}, {NULL, false}}; /* an event without a key has no others */

/* What it may have more of takes its turn. */
START_TEST(key_cut_short_behind_a_slow_sink_is_followed_only_when_a_later_event_of_it_was_found)
{
    const struct event events[] = {event_of(5, "a"), event_of(7, "b"), event_of(8, NULL)};
    const struct found_key found[] = {{SPAN_LITERAL("b"), {7, 9}}};
    claim_keys();
    claim->plan.behind = true;
    claim->plan.key_limit = 1;
    claim->plan.missed.at = found;
    claim->plan.missed.count = 1;
    claim_brings(events, 3);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert(!stage.queue.arrived->lanes->more);
    ck_assert(stage.queue.arrived->lanes->next->more);
    ck_assert(!stage.queue.arrived->lanes_end->more);
    ck_assert_uint_eq(stage.noting.released_count, 2);
    ck_assert_int_le(stage.noting.released.lo, 8);
    ck_assert_int_eq(stage.noting.released.hi, SCAN_ID_MAX);
    ck_assert_int_eq(stage.noting.released_at, NOW);
}
END_TEST

START_TEST(last_key_of_a_claim_that_returned_all_it_may_has_more)
{
    const struct event events[] = {event_of(1, "a"), event_of(2, cut[_i].last_key)};
    rows_limit = 2;
    claim_keys();
    claim_brings(events, 2);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert(!stage.queue.arrived->lanes->more);
    ck_assert(stage.queue.arrived->lanes_end->more == cut[_i].more);
}
END_TEST

START_TEST(keys_that_a_claim_has_locked_and_had_no_room_for_have_a_share_in_the_next)
{
    const struct event events[] = {event_of(1, "a"), event_of(2, "b")};
    claim_keys();
    claim->plan.locked = 3;
    claim_brings(events, 2);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_int_eq(stage.queue.claiming.keys_locked, 3);
}
END_TEST

/* ---- what a lost claim left behind ---- */

START_TEST(event_without_a_key_of_a_lost_claim_is_given_back)
{
    const struct event events[] = {event_of(7, NULL), event_of(8, NULL), event_of(9, "a")};
    lost_lane(7, NULL);
    lost_lane(8, "b");
    claim_keys();
    claim_brings(events, 3);
    script_brings(DB_ROUND_END);
    progress();
    struct lane *lane = stage.queue.arrived->lanes;
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_int_eq(lane->outcome, LANE_RELEASED);
    ck_assert_int_eq(lane->next->state, LANE_OPEN);
    ck_assert_int_eq(lane->next->next->state, LANE_OPEN);
}
END_TEST

START_TEST(event_that_a_lost_claim_found_gone_is_known_by_its_id)
{
    const struct event events[] = {event_of(6, NULL), event_of(7, NULL)};
    struct batch *batch = stage_batch(&stage);
    batch_add_ended_wait(batch, (struct span){NULL, 0}, 7);
    stage.queue.arrived = NULL;
    stage_lose(&stage);
    claim_keys();
    claim_brings(events, 2);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_int_eq(stage.queue.arrived->lanes->state, LANE_OPEN);
    ck_assert_int_eq(stage.queue.arrived->lanes_end->outcome, LANE_RELEASED);
}
END_TEST

START_TEST(keys_with_one_hash_are_told_apart)
{
    const struct event events[] = {event_of(1, "a")};
    lost_lane(1, "b")->hash = span_hash(span_of("a"));
    claim_keys();
    claim_brings(events, 1);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_int_eq(stage.queue.arrived->lanes->state, LANE_OPEN);
}
END_TEST

/* ---- when there is none ---- */

static void ready(void)
{
    claim_ready(&stage.queue, NULL, NOW);
}

START_TEST(claim_is_sent_when_it_is_time_to_look)
{
    ready();
    ck_assert_uint_eq(script.sends, 3); /* begin, the claim, the end of the round */
    ck_assert_int_eq(claim->state, CLAIM_BUSY);
}
END_TEST

START_TEST(connection_that_is_given_up_is_sent_nothing)
{
    script.idle = false; /* DB_DOWN is still to come */
    ready();
    ck_assert_uint_eq(script.sends, 0);
}
END_TEST

/* Neither claims in vain before their price is paid, nor what is not worth it yet. */
START_TEST(claim_waits_for_what_it_has_to_wait_for)
{
    struct pollset *ps = pollset_new();
    *(_i ? &stage.queue.wasted_until : &stage.queue.pace.earliest_at) = NOW + SECOND_US;
    ready();
    ck_assert_uint_eq(script.sends, 0);
    pollset_clear(ps);
    claim_prepare(&stage.queue, ps, NOW);
    instant_us wakes_at = pollset_next_deadline(ps);
    ck_assert_int_gt(wakes_at, NOW);
    ck_assert_int_le(wakes_at, NOW + SECOND_US);
    claim_ready(&stage.queue, NULL, wakes_at);
    ck_assert_uint_eq(script.sends, 3);
    pollset_free(ps);
}
END_TEST

/* Of an open transaction. */
static struct lane *held_lane(const char *key)
{
    struct lane *lane = stage_event(stage_batch(&stage), 1, key)->lane;
    stage.queue.arrived = NULL;
    claim->in_transaction = true;
    return lane;
}

START_TEST(transaction_of_a_straggler_is_extended_only_while_there_is_room_for_its_keys)
{
    held_lane("slow");
    script.shared = true; /* else its lock outlives the transaction */
    claim->began_at = NOW - SECOND_US;
    for (uint64_t i = 0; i < claim->held.max - (_i ? KEYS + 1 : KEYS); i++)
        ck_assert(keyset_put(&claim->held, (struct span){(char *)&i, sizeof i}, i, 0, NULL));
    ready();
    ck_assert_uint_eq(script.sends, _i ? 2 : 0); /* the claim and the end of the round */
}
END_TEST

static void leave_to_side_connection(struct lane *lane)
{
    lane->state = LANE_SETTLED;
    lane->batch->open--;
    lane->batch->unsettled--;
}

START_TEST(claim_whose_lanes_were_settled_aside_has_only_to_commit)
{
    struct pollset *ps = pollset_new();
    leave_to_side_connection(held_lane("a"));
    claim->began_at = NOW;
    stage.queue.pace.poll_at = INSTANT_NEVER;
    pollset_clear(ps);
    claim_prepare(&stage.queue, ps, NOW);
    ck_assert_int_eq(pollset_next_deadline(ps), INSTANT_NEVER); /* no straggler is waited for */
    claim_finish(claim, NOW);
    ck_assert_uint_eq(script.sends, 2);
    ck_assert_str_eq(script.sent[0], "commit");
    script_brings_results();
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_ptr_null(claim->batches);
    ck_assert(!claim->in_transaction);
    pollset_free(ps);
}
END_TEST

START_TEST(key_with_more_events_that_finds_the_list_full_is_left_to_the_scan)
{
    struct lane *lane = held_lane("a");
    lane->more = true;
    lane->state = LANE_FINISHED;
    lane->acked = 1;
    lane->batch->open--;
    lane->batch->finished++;
    stage.queue.pace.poll_at = INSTANT_NEVER;
    for (uint64_t i = 0; i < stage.queue.keys.more.max; i++)
        ck_assert(keyset_put(&stage.queue.keys.more, (struct span){(char *)&i, sizeof i}, i, 0, &stage));
    claim_finish(claim, NOW);
    script_brings_results();
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_uint_eq(stage.noting.released_count, 1);
    ck_assert_int_eq(stage.noting.released.hi, SCAN_ID_MAX);
}
END_TEST

static void add_tests(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, round_that_cannot_be_sent_drops_the_connection_and_keeps_what_it_was_to_settle);
    tcase_add_loop_test(tcase, rollback_that_cannot_be_sent_drops_the_connection, 1, 3);
    tcase_add_test(tcase, answer_to_a_rollback_makes_the_connection_idle);
    tcase_add_test(tcase, transaction_in_a_session_that_is_shared_is_let_last_before_it_claims);
    tcase_add_test(tcase, keys_that_are_leased_need_no_transaction_that_lasts);
    tcase_add_test(tcase, first_failure_of_a_round_is_the_one_that_counts);
    tcase_add_test(tcase, claim_out_of_order_is_given_up_whatever_follows_it);
    tcase_add_test(tcase, no_more_than_a_few_batches_are_read_in_one_turn);
    tcase_add_test(tcase, wait_of_a_key_is_noted_in_its_lane);
    tcase_add_loop_test(tcase, wait_of_an_event_that_is_left_out_is_not_noted_in_the_lane_before_it, 0, 4);
    tcase_add_test(tcase, key_cut_short_behind_a_slow_sink_is_followed_only_when_a_later_event_of_it_was_found);
    tcase_add_loop_test(tcase, last_key_of_a_claim_that_returned_all_it_may_has_more, 0, 2);
    tcase_add_test(tcase, keys_that_a_claim_has_locked_and_had_no_room_for_have_a_share_in_the_next);
    tcase_add_test(tcase, event_without_a_key_of_a_lost_claim_is_given_back);
    tcase_add_test(tcase, event_that_a_lost_claim_found_gone_is_known_by_its_id);
    tcase_add_test(tcase, keys_with_one_hash_are_told_apart);
    tcase_add_test(tcase, claim_is_sent_when_it_is_time_to_look);
    tcase_add_test(tcase, connection_that_is_given_up_is_sent_nothing);
    tcase_add_loop_test(tcase, claim_waits_for_what_it_has_to_wait_for, 0, 2);
    tcase_add_loop_test(tcase, transaction_of_a_straggler_is_extended_only_while_there_is_room_for_its_keys, 0, 2);
    tcase_add_test(tcase, claim_whose_lanes_were_settled_aside_has_only_to_commit);
    tcase_add_test(tcase, key_with_more_events_that_finds_the_list_full_is_left_to_the_scan);
}

int main(void)
{
    Suite *suite = suite_create("claim_connection");
    TCase *tcase = tcase_create("claim_connection");
    suite_add_tcase(suite, tcase);
    add_tests(tcase);
    return run_suite(suite);
}
