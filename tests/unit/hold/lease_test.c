/* Keys that are held by leases: from the claim to the queue, renewed, lost, given back. */
#include "relay/hold/lease.h"

#include "relay/claim/claim_request.h"
#include "relay/deliver/deliver.h"
#include "relay/route/route.h"
#include "relay/settle/blame.h"
#include "relay/settle/refusal.h"
#include "relay/side/side.h"
#include "relay/side/upkeep.h"
#include "sql_text.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/lease_stage.h"

START_TEST(what_a_claim_brings_is_leased_before_it_arrives)
{
    struct batch *batch = brought();
    struct item *keyed = stage_event(batch, 1, "a"), *keyless = stage_event(batch, 2, NULL);
    keyed->event.attempt = 3;
    batch_add_ended_wait(batch, SPAN_LITERAL("gone"), 7);
    claim_settle_resolved(queue, NOW);
    ck_assert_uint_eq(granted.count, 3);
    ck_assert_int_eq(granted_pid, 4711);
    ck_assert(span_equal(granted.keys[0], SPAN_LITERAL("a")) && !granted.keys[1].data);
    ck_assert_int_eq(granted.failures[0], 2);
    ck_assert_int_eq(granted.ids[2], 7);
    ck_assert_str_eq(granted.tokens[0].data, keyed->lane->token);
    ck_assert_str_ne(keyed->lane->token, keyless->lane->token);
    ck_assert_uint_eq(strlen(keyed->lane->token), 36);
    ck_assert_str_eq(script.sent[0], "grant");
    ck_assert_str_eq(script.sent[1], "commit");
    ck_assert_ptr_null(queue->arrived);
    script_brings_count(0, 3);
    script_brings_result(1, PGRES_COMMAND_OK);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_ptr_eq(queue->arrived, batch);
    ck_assert_ptr_eq(queue->holds.leased, batch);
    ck_assert_ptr_null(claim->batches);
    ck_assert(batch->hold == HOLD_LEASE && !claim->in_transaction);
    queue->arrived = NULL;
}
END_TEST

START_TEST(claim_that_has_not_leased_all_of_its_keys_sends_nothing)
{
    struct lane *lane = stage_event(brought(), 1, "a")->lane;
    lease(0);
    ck_assert_ptr_null(queue->arrived);
    ck_assert_ptr_eq(queue->holds.leased, lane->batch);
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_int_eq(lane->outcome, LANE_RELEASED); /* it may be leased: nobody knows */
    ck_assert(lane->hold == HOLD_LEASE);
}
END_TEST

START_TEST(claim_that_is_lost_before_it_leases_has_nothing_to_give_back)
{
    struct lane *lane = stage_event(brought(), 1, "a")->lane;
    script_brings(DB_DOWN);
    progress();
    ck_assert_ptr_eq(queue->holds.leased, lane->batch);
    ck_assert(lane->hold == HOLD_LOST);
    struct settle_job *job = settle_collect(queue, queue->holds.leased, true);
    ck_assert(settle_is_empty(job));
    settle_commit(queue, job, NOW);
    ck_assert_int_eq(lane->state, LANE_SETTLED);
}
END_TEST

/* The backend that owned the lease was gone, of which our claim knew before we did: what we have of the key is under
 * way. */
START_TEST(what_a_lane_of_ours_has_is_not_leased_a_second_time)
{
    struct lane *held = leased_lane();
    struct batch *batch = brought();
    struct lane *again = stage_event(batch, 1, "a")->lane, *other = stage_event(batch, 9, "b")->lane;
    again->waited = other->waited = true;
    batch->sent_at = NOW;
    lease(1);
    ck_assert_uint_eq(granted.count, 1);
    ck_assert(again->hold == HOLD_LOST && !again->token[0]);
    ck_assert_int_eq(again->state, LANE_FINISHED);
    ck_assert(held->hold == HOLD_LEASE && other->hold == HOLD_LEASE);
    ck_assert_int_eq(held->state, LANE_OPEN);
    ck_assert_int_eq(other->state, LANE_OPEN);
    queue->arrived = NULL;
}
END_TEST

START_TEST(claim_of_nothing_but_what_is_ours_leases_nothing)
{
    struct lane *held = leased_lane();
    struct batch *batch = brought();
    struct lane *again = stage_event(batch, 1, "a")->lane;
    again->waited = true;
    batch->sent_at = NOW;
    claim->sent_at = NOW;
    script.sends = 0;
    claim_settle_resolved(queue, NOW);
    script_brings_result(0, PGRES_COMMAND_OK);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_str_eq(script.sent[0], "commit");
    ck_assert(again->hold == HOLD_LOST && held->hold == HOLD_LEASE);
    queue->arrived = NULL;
}
END_TEST

START_TEST(leases_are_renewed_at_a_third_of_their_term)
{
    ck_assert_int_eq(lease_due_at(queue), INSTANT_NEVER);
    struct lane *lane = leased_lane();
    ck_assert(!lease_is_due(queue, NOW + TERM_US / 3 - 1));
    instant_us at = NOW + TERM_US / 3;
    ck_assert(lease_is_due(queue, at));
    struct statement st = lease_renewal(queue, lane->batch->arena, at);
    ck_assert_str_eq(st.sql, "renew");
    ck_assert_uint_eq(renewed_count, 1);
    lease_renewed(queue, true, at + 1);
    ck_assert_int_eq(lease_due_at(queue), at + 1 + TERM_US / 12);
    lease_renewed(queue, false, at + 2);
    ck_assert_int_eq(lease_due_at(queue), at + TERM_US / 3); /* from when it was asked for */
}
END_TEST

START_TEST(what_is_leased_while_others_are_renewed_is_not_renewed)
{
    struct lane *lane = leased_lane();
    lease_renewal(queue, lane->batch->arena, NOW + SECOND_US);
    lane->batch->renewed_at = 0; /* as if it had come later */
    lease_renewed(queue, false, NOW + SECOND_US);
    ck_assert_int_eq(lane->batch->leased_at, NOW);
}
END_TEST

static PGresult *unrenewed_token(const char *token, bool held)
{
    PGresAttDesc columns[] = {{.name = "token", .format = 1, .typid = 25}, {.name = "held", .format = 1, .typid = 16}};
    PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
    ck_assert(PQsetResultAttrs(res, 2, columns) && PQsetvalue(res, 0, 0, (char *)(uintptr_t)token, (int)strlen(token)));
    ck_assert(PQsetvalue(res, 0, 1, (char *)&held, sizeof held));
    return res;
}

static PGresult *lost_token(const char *token)
{
    return unrenewed_token(token, false);
}

/* Another one of its batch. */
static struct lane *lane_beside(const struct lane *lane)
{
    struct lane *other = stage_event(lane->batch, 9, "b")->lane;
    other->leased_at = lane->leased_at;
    memset(other->token, 'x', sizeof other->token - 1);
    lane_hold(other, HOLD_LEASE);
    return other;
}

static void renew_all_but(const struct lane *lane, instant_us at)
{
    lease_renewal(queue, lane->batch->arena, at);
    PGresult *res = unrenewed_token(lane->token, true);
    lease_take(queue, res, at);
    PQclear(res);
    lease_renewed(queue, false, at);
}

/* By a session that has paused its key and does not commit, say. Nobody else's lease suffers from it. */
START_TEST(entry_that_somebody_has_locked_costs_its_own_term_alone)
{
    struct lane *lane = leased_lane(), *other = lane_beside(lane);
    instant_us at = NOW + TERM_US / 3;
    renew_all_but(lane, at);
    ck_assert_int_eq(lane->leased_at, NOW);
    ck_assert_int_eq(other->leased_at, at);
    ck_assert_int_eq(lane->batch->leased_at, NOW);
    ck_assert_int_eq(lease_due_at(queue), at + TERM_US / 12);
    lease_hold(queue, NOW + TERM_US * 2 / 3);
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    ck_assert_int_eq(other->state, LANE_OPEN);
    lease_hold(queue, NOW + TERM_US - 1);
    ck_assert(lane->hold == HOLD_CALLED_BACK && other->hold == HOLD_LEASE);
    ck_assert_int_eq(lease_over_at(queue), at + TERM_US - TERM_US / 12);
}
END_TEST

/* What was called back may be renewed all the same: from then on it is as the others are. */
START_TEST(entry_that_is_let_go_too_late_keeps_no_others_from_being_called_back)
{
    struct lane *lane = leased_lane(), *other = lane_beside(lane);
    renew_all_but(lane, NOW + TERM_US / 3);
    lease_hold(queue, NOW + TERM_US - 1);
    ck_assert(lane->hold == HOLD_CALLED_BACK && other->hold == HOLD_LEASE);
    instant_us at = NOW + TERM_US - 1;
    lease_renewal(queue, lane->batch->arena, at);
    lease_renewed(queue, false, at);
    ck_assert_int_eq(lease_over_at(queue), at + TERM_US - TERM_US / 12);
}
END_TEST

/* The renewal after one that has failed begins without what that one has found. */
START_TEST(renewal_that_fails_forgets_whose_entries_were_locked)
{
    struct lane *lane = leased_lane();
    lane->unrenewed = true;
    lease_renewed(queue, true, NOW + 1);
    lease_renewal(queue, lane->batch->arena, NOW + 2);
    lease_renewed(queue, false, NOW + 3);
    ck_assert_int_eq(lane->leased_at, NOW + 2);
}
END_TEST

START_TEST(entry_that_is_let_go_in_time_is_renewed_with_the_others)
{
    struct lane *lane = leased_lane(), *other = lane_beside(lane);
    instant_us at = NOW + TERM_US / 3;
    renew_all_but(lane, at);
    lease_renewal(queue, lane->batch->arena, at + 1);
    lease_renewed(queue, false, at + 2);
    ck_assert_int_eq(lane->leased_at, at + 1);
    ck_assert_int_eq(other->leased_at, at + 1);
    ck_assert_int_eq(lease_due_at(queue), at + 1 + TERM_US / 3);
}
END_TEST

START_TEST(lane_whose_lease_is_lost_sends_and_writes_nothing_more)
{
    struct lane *lane = leased_lane();
    stage_ack(lane, 1);
    PGresult *res = lost_token(lane->token);
    lease_take(queue, res, NOW);
    lease_take(queue, res, NOW); /* it is known */
    PQclear(res);
    ck_assert_uint_eq(queue->metrics.leases_lost, 1);
    ck_assert(lane->hold == HOLD_LOST);
    ck_assert_int_eq(lane->state, LANE_FINISHED);
    struct settle_job *job = settle_collect(queue, queue->holds.leased, true);
    ck_assert(settle_is_empty(job));
    ck_assert_uint_eq(job->settlement.token_count, 0);
    settle_commit(queue, job, NOW);
    ck_assert_int_eq(lane->state, LANE_SETTLED);
}
END_TEST

START_TEST(lease_that_is_lost_before_anything_was_sent_is_not_counted)
{
    struct lane *lane = leased_lane();
    PGresult *res = lost_token(lane->token);
    lease_take(queue, res, NOW);
    PQclear(res);
    ck_assert(lane->hold == HOLD_LOST);
    ck_assert_uint_eq(queue->metrics.leases_lost, 0);
}
END_TEST

/* Somebody may have taken them over by then. */
START_TEST(nothing_is_begun_when_the_backend_that_owns_the_leases_is_lost)
{
    struct lane *lane = leased_lane();
    stage.config.lease_owner = _i ? LEASE_NAME : LEASE_BACKEND;
    lease_backend_lost(queue, NOW);
    ck_assert_int_eq(lane->state, _i ? LANE_OPEN : LANE_FINISHED);
    lease_backend_up(queue, NOW + 1);
    ck_assert_int_eq(lease_is_due(queue, NOW + 1), !_i);
    if (_i) {
        lease_renewal(queue, lane->batch->arena, NOW);
        ck_assert_int_eq(granted_pid, 0);
    }
}
END_TEST

/* The same, and the answer to the grant comes after that. */
START_TEST(nothing_is_begun_when_that_backend_is_lost_while_they_are_granted)
{
    struct lane *lane = stage_lane_of_three(brought(), 1, "a");
    stage.config.lease_owner = _i ? LEASE_NAME : LEASE_BACKEND;
    claim->sent_at = NOW;
    claim_settle_resolved(queue, NOW);
    lease_backend_lost(queue, NOW);
    script_brings_count(0, 1);
    script_brings_result(1, PGRES_COMMAND_OK);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_ptr_eq(queue->holds.leased, lane->batch);
    ck_assert_ptr_eq(queue->arrived, _i ? lane->batch : NULL);
    ck_assert_int_eq(lane->state, _i ? LANE_OPEN : LANE_FINISHED);
    ck_assert(lane->hold == HOLD_LEASE); /* it may be ours: it is given back */
    queue->arrived = NULL;
}
END_TEST

START_TEST(loss_of_that_backend_is_heard_of_before_anything_is_sent)
{
    struct lane *lane = leased_lane();
    queue->leases.used = _i;
    queue->side->state = SIDE_IDLE;
    script_brings(DB_DOWN);
    side_hear(queue, NULL, NOW);
    ck_assert_int_eq(lane->state, _i ? LANE_FINISHED : LANE_OPEN);
    ck_assert_int_eq(queue->side->state, _i ? SIDE_OFF : SIDE_IDLE);
}
END_TEST

START_TEST(nothing_is_settled_while_a_lease_is_in_doubt)
{
    struct lane *lane = leased_lane();
    lease_maybe_lost(queue, NOW);
    ck_assert(lease_is_due(queue, NOW));
    lease_renewal(queue, lane->batch->arena, NOW);
    lease_renewed(queue, true, NOW);
    ck_assert(queue->leases.maybe_lost);
    lease_renewed(queue, false, NOW);
    ck_assert(!queue->leases.maybe_lost);
}
END_TEST

static bool met(size_t failed_at, const char *sqlstate, size_t tokens)
{
    struct settle_job job = {.settlement.token_count = tokens};
    struct round round = {.job = &job, .settle_at = 1, .failed = true, .failed_at = failed_at};
    round.rule = sqlstate_rule(sqlstate);
    return round_met_lost_lease(&round);
}

START_TEST(settlement_says_that_a_lease_is_over_by_its_first_statement)
{
    ck_assert(met(1, "22P02", 1));
    ck_assert(!met(2, "22P02", 1));
    ck_assert(!met(1, "42501", 1));
    ck_assert(!met(1, "22P02", 0));
    ck_assert(!round_met_lost_lease(&(struct round){.failed = true}));
}
END_TEST

START_TEST(as_many_lanes_are_leased_as_the_sink_has_places_for)
{
    sink_config.max_in_flight = 3;
    ck_assert_int_eq(lease_room(queue), 3);
    struct lane *lane = leased_lane();
    stage_event(brought(), 9, "b");
    ck_assert_int_eq(lease_room(queue), 1);
    sink.keys_max = 2;
    ck_assert_int_eq(lease_room(queue), 0);
    sink.keys_max = 1;
    ck_assert_int_eq(lease_room(queue), 0);
    sink.keys_max = 0;
    ck_assert_int_eq(lease_room(queue), 1);
    lane->batch->blocked = 1; /* its delivery is over */
    ck_assert_int_eq(lease_room(queue), 2);
    stage.config.keys_per_claim = 1; /* as many as may be kept in mind */
    ck_assert_int_eq(lease_room(queue), 0);
    lane->batch->blocked = 0;
    lane->batch->bytes = 3 * (1 << 20) + 1; /* as much as may be held, but for one more claim */
    ck_assert_int_eq(lease_room(queue), 0);
}
END_TEST

START_TEST(first_events_are_settled_and_the_lease_goes_on_with_the_next)
{
    struct lane *lane = leased_lane();
    stage_ack(lane, 2);
    struct settle_job *job = settle_collect(queue, queue->holds.leased, true);
    const struct settlement *s = &job->settlement;
    ck_assert_uint_eq(s->done_count, 2);
    ck_assert_uint_eq(s->token_count, 1);
    ck_assert_uint_eq(s->moved_count, 1);
    ck_assert_int_eq(s->moved_ids[0], 3);
    ck_assert_uint_eq(s->released_count + s->resumed_key_count, 0);
    settle_commit(queue, job, NOW);
    stage_finish(lane, 1, LANE_DELIVERED);
    job = settle_collect(queue, queue->holds.leased, true);
    s = &job->settlement;
    ck_assert_uint_eq(s->moved_count + s->released_count, 0);
    ck_assert_uint_eq(s->resumed_key_count, 1); /* its entry goes on to what is left of the key, or goes */
    settle_commit(queue, job, NOW);
}
END_TEST

START_TEST(lease_of_what_was_not_sent_is_given_back)
{
    struct lane *lane = leased_lane();
    deliver_stop(lane, 0, NOW);
    struct settle_job *job = settle_collect(queue, queue->holds.leased, true);
    const struct settlement *s = &job->settlement;
    ck_assert(!settle_is_empty(job));
    ck_assert_uint_eq(s->released_count, 1);
    ck_assert_uint_eq(s->moved_count + s->resumed_key_count, 0);
    ck_assert_str_eq(s->released_tokens[0].data, lane->token);
    settle_abort(job);
}
END_TEST

START_TEST(lease_that_cannot_even_be_given_back_is_left_to_run_out)
{
    struct error cause;
    struct lane *lane = leased_lane();
    error_set(&cause, ERROR_PERMISSION, "no");
    deliver_stop(lane, 0, NOW);
    queue->refusal.blame_until = NOW + 1;
    struct settle_job *job = settle_collect(queue, queue->holds.leased, true);
    ck_assert(refusal_halve(queue, job, refusal_blames, &cause, NOW));
    ck_assert(lane->hold == HOLD_LOST);
}
END_TEST

/* Our own claims find it when its term is over, and its first delivery may still be under way. */
START_TEST(key_whose_term_may_be_over_is_busy)
{
    leased_lane();
    struct batch *batch = brought();
    stage_event(batch, 9, NULL);
    lease(1);
    queue->arrived = NULL;
    claim->round.arena = arena_new();
    const struct claim_request *request = claim_request_make(claim, false, 4, NOW);
    ck_assert_uint_eq(request->busy_key_count + request->busy_keyless_count, 0);
    request = claim_request_make(claim, false, 4, NOW + TERM_US);
    ck_assert_uint_eq(request->busy_key_count, 1);
    ck_assert_uint_eq(request->busy_keyless_count, 1);
    ck_assert_int_eq(request->busy_keyless_ids[0], 9);
}
END_TEST

START_TEST(event_that_has_used_up_its_attempts_by_leases_is_not_sent)
{
    struct lane *lane = stage_event(brought(), 1, "a")->lane;
    lane->first->event.attempt = 4;
    lease(1);
    route_claimed(queue);
    ck_assert_int_eq(lane->first->delivery.verdict, VERDICT_REJECTED);
    ck_assert_uint_eq(lane->first->event.attempt, 3);
    ck_assert_str_eq(lane->first->delivery.cause->text, "the lease of its last attempt ran out");
    deliver_stop(lane, 0, NOW);
}
END_TEST

START_TEST(paused_queue_sends_nothing_more_of_what_is_leased)
{
    struct lane *lane = leased_lane();
    queue->pause.on = true;
    upkeep_hold(queue, NOW);
    ck_assert_int_eq(lane->state, LANE_FINISHED);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("lease");
    TCase *tcase = tcase_create("lease");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up_leases, tear_down_leases);
    tcase_add_test(tcase, what_a_claim_brings_is_leased_before_it_arrives);
    tcase_add_test(tcase, claim_that_has_not_leased_all_of_its_keys_sends_nothing);
    tcase_add_test(tcase, claim_that_is_lost_before_it_leases_has_nothing_to_give_back);
    tcase_add_test(tcase, what_a_lane_of_ours_has_is_not_leased_a_second_time);
    tcase_add_test(tcase, claim_of_nothing_but_what_is_ours_leases_nothing);
    tcase_add_test(tcase, leases_are_renewed_at_a_third_of_their_term);
    tcase_add_test(tcase, what_is_leased_while_others_are_renewed_is_not_renewed);
    tcase_add_test(tcase, entry_that_somebody_has_locked_costs_its_own_term_alone);
    tcase_add_test(tcase, entry_that_is_let_go_too_late_keeps_no_others_from_being_called_back);
    tcase_add_test(tcase, renewal_that_fails_forgets_whose_entries_were_locked);
    tcase_add_test(tcase, entry_that_is_let_go_in_time_is_renewed_with_the_others);
    tcase_add_test(tcase, lane_whose_lease_is_lost_sends_and_writes_nothing_more);
    tcase_add_test(tcase, lease_that_is_lost_before_anything_was_sent_is_not_counted);
    tcase_add_loop_test(tcase, nothing_is_begun_when_the_backend_that_owns_the_leases_is_lost, 0, 2);
    tcase_add_loop_test(tcase, nothing_is_begun_when_that_backend_is_lost_while_they_are_granted, 0, 2);
    tcase_add_loop_test(tcase, loss_of_that_backend_is_heard_of_before_anything_is_sent, 0, 2);
    tcase_add_test(tcase, nothing_is_settled_while_a_lease_is_in_doubt);
    tcase_add_test(tcase, settlement_says_that_a_lease_is_over_by_its_first_statement);
    tcase_add_test(tcase, as_many_lanes_are_leased_as_the_sink_has_places_for);
    tcase_add_test(tcase, first_events_are_settled_and_the_lease_goes_on_with_the_next);
    tcase_add_test(tcase, lease_of_what_was_not_sent_is_given_back);
    tcase_add_test(tcase, lease_that_cannot_even_be_given_back_is_left_to_run_out);
    tcase_add_test(tcase, key_whose_term_may_be_over_is_busy);
    tcase_add_test(tcase, event_that_has_used_up_its_attempts_by_leases_is_not_sent);
    tcase_add_test(tcase, paused_queue_sends_nothing_more_of_what_is_leased);
    return run_suite(suite);
}
