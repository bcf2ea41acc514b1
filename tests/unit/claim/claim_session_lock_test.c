/* What becomes of a claim with a straggler: its locks are kept by the session, and the connection goes on. */
#include "relay/claim/claim.h"
#include "relay/claim/claim_request.h"
#include "relay/settle/blocked.h"
#include "sql_text.h"
#include "tests/support/run_suite.h"
#include "tests/unit/stage/claim_stage.h"

static struct batch *batch;
static struct lane *slow, *done; /* of the batch: under way, and acked */

static struct lane *lane_of(const char *key, int64_t id)
{
    struct lane *lane = stage_event(batch, id, key)->lane;
    stage.queue.arrived = NULL;
    return lane;
}

static char *sqlstate; /* of what fails; NULL: none */

char *__wrap_PQresultErrorField(const PGresult *result, int field);

char *__wrap_PQresultErrorField(const PGresult *result, int field)
{
    (void)result;
    return field == PG_DIAG_SQLSTATE ? sqlstate : NULL;
}

static void set_up_straggler(void)
{
    set_up();
    sqlstate = NULL;
    batch = stage_batch(&stage);
    slow = lane_of("slow", 1);
    done = lane_of("done", 2);
    stage_finish(done, 1, LANE_DELIVERED);
    claim->in_transaction = claim->has_read = true;
    claim->began_at = NOW - SECOND_US;
    stage.queue.pace.poll_at = INSTANT_NEVER;
}

static void settle_at(instant_us now)
{
    claim_settle_resolved(&stage.queue, now);
}

/* Sent in this order, and nothing else since `from`. */
static void assert_sent(size_t from, const char *const *statements)
{
    size_t i = from;
    for (; *statements; statements++, i++)
        ck_assert_str_eq(script.sent[i], *statements);
    ck_assert_uint_eq(script.sends, i);
}

/* Good results of a round of the statements since `from`, but for the last, which ends it. */
static void bring_round(size_t from, int64_t kept_count, int64_t freed_count)
{
    for (size_t i = from; i + 1 < script.sends; i++)
        if (strcmp(script.sent[i], "keep") == 0)
            script_brings_count(i - from, kept_count);
        else if (strcmp(script.sent[i], "let go") == 0)
            script_brings_count(i - from, freed_count);
        else
            script_brings_result(i - from, PGRES_COMMAND_OK);
    script_brings(DB_ROUND_END);
    progress();
}

/* The straggler is kept, the other lane settled, nothing more claimed. */
static size_t keep_straggler(void)
{
    settle_at(NOW);
    bring_round(0, 2, 1);
    claim->began_at = NOW;
    return script.sends;
}

START_TEST(straggler_is_kept_while_others_are_settled_and_more_keys_are_claimed)
{
    const struct event events[] = {event_of(3, "new")};
    stage.queue.pace.poll_at = NOW;
    returned = events;
    returned_count = 1;
    settle_at(NOW);
    assert_sent(0, (const char *const[]){"keep", sql_settle_savepoint, "settle", sql_settle_constraints, "commit",
                                         sql_claim_begin, "let go", "claim", "end", NULL});
    ck_assert_uint_eq(kept.key_count, 2); /* what is on its way out as well, for fear that it fails */
    ck_assert_uint_eq(let_go.key_count, 1);
    ck_assert(span_equal(let_go.keys[0], done->key));
    bring_round(0, 2, 1);
    ck_assert(batch->hold == HOLD_SESSION && slow->hold == HOLD_SESSION && done->hold != HOLD_SESSION);
    ck_assert_int_eq(slow->state, LANE_OPEN);
    ck_assert_int_eq(done->state, LANE_SETTLED);
    ck_assert_ptr_eq(claim->batches, stage.queue.arrived);
    ck_assert_ptr_eq(claim->batches->next, batch);
    ck_assert(claim->batches->hold == HOLD_TRANSACTION);
}
END_TEST

START_TEST(straggler_is_freed_when_it_is_settled)
{
    size_t from = keep_straggler();
    stage_finish(slow, 1, LANE_DELIVERED);
    settle_at(NOW);
    assert_sent(from, (const char *const[]){sql_settle_savepoint, "settle", sql_settle_constraints, "commit", "let go",
                                            "end", NULL});
    ck_assert_uint_eq(let_go.key_count, 1);
    ck_assert(span_equal(let_go.keys[0], slow->key));
    bring_round(from, 0, 1);
    ck_assert_ptr_null(claim->batches);
    ck_assert(!claim->in_transaction);
}
END_TEST

START_TEST(event_without_a_key_is_kept_by_its_id)
{
    lane_of(NULL, 7);
    settle_at(NOW);
    ck_assert_uint_eq(kept.keyless_count, 1);
    ck_assert_int_eq(kept.keyless_ids[0], 7);
}
END_TEST

/* Its transaction has read the table, and somebody may want that for himself. */
START_TEST(straggler_with_nothing_beside_it_does_not_keep_its_transaction)
{
    done->state = LANE_SETTLED;
    batch->finished--;
    batch->unsettled--;
    settle_at(NOW);
    assert_sent(0, (const char *const[]){"keep", "commit", sql_claim_begin, "end", NULL});
    ck_assert_uint_eq(kept.key_count, 1);
    bring_round(0, 1, 0);
    settle_at(NOW + SECOND_US);
    ck_assert_uint_eq(script.sends, 4); /* once */
}
END_TEST

/* Nothing is claimed, for a pause. The server ends a session whose transaction stands still, and with it the locks. */
START_TEST(transaction_of_a_straggler_that_is_kept_is_begun_anew_once_a_minute)
{
    size_t from = keep_straggler();
    stage.queue.pause.on = true;
    stage.queue.pace.poll_at = NOW;
    settle_at(NOW + 60 * SECOND_US - 1);
    ck_assert_uint_eq(script.sends, from);
    settle_at(NOW + 60 * SECOND_US);
    assert_sent(from, (const char *const[]){"commit", sql_claim_begin, "end", NULL});
    bring_round(from, 0, 0);
    ck_assert_ptr_eq(claim->batches, batch);
    ck_assert(slow->hold == HOLD_SESSION && claim->in_transaction);
    ck_assert_int_eq(claim->began_at, NOW);
}
END_TEST

START_TEST(lane_that_is_given_back_is_freed_though_nothing_is_written)
{
    size_t from = keep_straggler();
    struct lane *other = lane_of("other", 3);
    lane_hold(other, HOLD_SESSION);
    stage_finish(other, 0, LANE_RELEASED);
    settle_at(NOW + SECOND_US);
    assert_sent(from, (const char *const[]){"commit", sql_claim_begin, "let go", sql_claim_rest, "end", NULL});
}
END_TEST

START_TEST(claim_is_left_alone_while_nobody_has_waited_for_long)
{
    claim->began_at = NOW;
    settle_at(NOW);
    ck_assert_uint_eq(script.sends, 0);
}
END_TEST

START_TEST(nothing_is_kept_behind_a_pooler)
{
    script.shared = true;
    settle_at(NOW);
    ck_assert_uint_eq(script.sends, 0);
    claim_offer(&stage.queue, NOW);
    ck_assert(stage.queue.claiming.offered[0]);
}
END_TEST

START_TEST(claim_beside_a_straggler_that_is_kept_waits_for_nothing)
{
    size_t from = keep_straggler();
    claim->has_read = true;
    batch = stage_batch(&stage);
    stage_finish(lane_of("quick", 3), 1, LANE_DELIVERED);
    settle_at(NOW);
    assert_sent(from, (const char *const[]){sql_settle_savepoint, "settle", sql_settle_constraints, "commit",
                                            sql_claim_begin, "end", NULL});
}
END_TEST

START_TEST(what_comes_beside_a_straggler_that_is_kept_is_claimed_at_once)
{
    size_t from = keep_straggler();
    settle_at(NOW);
    ck_assert_uint_eq(script.sends, from);
    stage.queue.pace.poll_at = NOW;
    settle_at(NOW);
    assert_sent(from, (const char *const[]){"commit", sql_claim_begin, "claim", "end", NULL});
}
END_TEST

/* It has read the table all the same. */
START_TEST(claim_that_finds_nothing_beside_a_straggler_does_not_keep_its_transaction)
{
    keep_straggler();
    stage.queue.pace.poll_at = NOW;
    size_t from = script.sends;
    settle_at(NOW);
    bring_round(from, 0, 0);
    ck_assert(claim->has_read);
    stage.queue.pace.poll_at = INSTANT_NEVER;
    from = script.sends;
    settle_at(NOW);
    assert_sent(from, (const char *const[]){"commit", sql_claim_begin, "end", NULL});
    bring_round(from, 0, 0);
    settle_at(NOW + SECOND_US);
    ck_assert_uint_eq(script.sends, from + 3); /* once */
    ck_assert(slow->hold == HOLD_SESSION && claim->in_transaction && !claim->has_read);
}
END_TEST

static const struct {
    size_t open, bytes;
    bool full, claims;
} limits[] = {
    {KEYS / 2, 0, true, true},
    {KEYS / 2 + 1, 0, true, false},
    {KEYS / 2 + 1, 0, false, true},
    {(size_t)KEYS * CLAIM_LOCKS_FACTOR - 1, 0, false, true},
    {(size_t)KEYS * CLAIM_LOCKS_FACTOR, 0, false, false},
    {1, 3 << 20, true, true},
    {1, (3 << 20) + 1, false, false},
};

START_TEST(claims_beside_stragglers_are_bounded)
{
    size_t from = keep_straggler();
    for (size_t open = 1; open < limits[_i].open; open++)
        lane_of("other", (int64_t)open + 10)->hold = HOLD_SESSION;
    batch->open = limits[_i].open;
    batch->bytes += limits[_i].bytes > 0 ? limits[_i].bytes - batch->bytes : 0;
    sink.in_flight = limits[_i].full ? 100 : 99;
    stage.queue.pace.poll_at = NOW;
    settle_at(NOW);
    ck_assert_uint_eq(script.sends, from + (limits[_i].claims ? 4 : 0));
}
END_TEST

/* ---- failures ---- */

START_TEST(round_that_cannot_be_sent_loses_no_ack)
{
    stage.queue.pace.poll_at = NOW;
    script.fails_at = (size_t)_i;
    settle_at(NOW);
    ck_assert_uint_eq(script.sends, script.fails_at);
    ck_assert_str_eq(script.drop_reason, "cannot be sent");
    script_brings(DB_DOWN);
    progress();
    ck_assert_int_eq(done->state, LANE_FINISHED);
    ck_assert_uint_eq(batch->in_settlement, 0);
    ck_assert_ptr_eq(stage.queue.holds.orphans, batch);
}
END_TEST

START_TEST(settlement_that_fails_costs_no_lock_that_is_kept)
{
    settle_at(NOW);
    script_brings_count(0, 2);
    script_brings_result(1, PGRES_COMMAND_OK);
    script_brings_result(2, PGRES_FATAL_ERROR);
    size_t from = script.sends;
    script_brings(DB_ROUND_END);
    progress();
    assert_sent(from, (const char *const[]){"rollback", sql_claim_begin, "end", NULL});
    ck_assert_ptr_eq(claim->batches, batch);
    ck_assert_int_eq(slow->state, LANE_OPEN);
    ck_assert_int_eq(done->state, LANE_FINISHED);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert(claim->in_transaction);
    settle_at(NOW);
    ck_assert_uint_eq(script.sends, from + 3); /* not at once */
    settle_at(claim->retry_at + SECOND_US);
    ck_assert_str_eq(script.sent[from + 3], sql_settle_savepoint); /* they are kept already */
}
END_TEST

START_TEST(claim_that_fails_costs_no_lock_that_is_kept)
{
    stage.queue.pace.poll_at = NOW;
    settle_at(NOW);
    for (size_t i = 0; i < 7; i++)
        if (i == 0 || i == 6)
            script_brings_count(i, i == 0 ? 2 : 1);
        else
            script_brings_result(i, PGRES_COMMAND_OK);
    script_brings_result(7, PGRES_FATAL_ERROR);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_ptr_eq(claim->batches, batch);
    ck_assert(batch->hold == HOLD_SESSION);
    ck_assert_int_eq(slow->state, LANE_OPEN);
    ck_assert_int_eq(done->state, LANE_SETTLED);
}
END_TEST

/* The side connection, which settles what other claims have left, has settled batches freed as well. */
START_TEST(round_that_fails_before_a_lock_is_freed_does_not_forget_it)
{
    keep_straggler();
    stage_finish(slow, 0, LANE_RELEASED);
    settle_at(NOW);
    ck_assert_int_eq(slow->state, LANE_SETTLED);
    script_brings_result(0, PGRES_FATAL_ERROR);
    script_brings(DB_ROUND_END);
    progress();
    script_brings(DB_ROUND_END); /* rolled back, and begun again */
    progress();
    claim_free_settled(claim);
    ck_assert_ptr_eq(claim->batches, batch);
    size_t from = script.sends;
    settle_at(claim->retry_at + SECOND_US);
    assert_sent(from, (const char *const[]){"commit", sql_claim_begin, "let go", "claim", "end", NULL});
    ck_assert(span_equal(let_go.keys[0], slow->key));
}
END_TEST

START_TEST(locks_of_which_nobody_knows_whether_the_session_took_them_go_with_it)
{
    settle_at(NOW);
    static char cancelled[] = "57014";
    sqlstate = cancelled;
    script_brings_result(0, PGRES_FATAL_ERROR);
    script_brings(DB_ROUND_END);
    progress();
    ck_assert_ptr_null(claim->batches);
    ck_assert_ptr_eq(stage.queue.holds.orphans, batch);
    ck_assert_ptr_nonnull(strstr(script.drop_reason, "57014"));
}
END_TEST

START_TEST(locks_that_the_session_did_not_take_are_lost)
{
    settle_at(NOW);
    bring_round(0, 1, 1);
    ck_assert_ptr_null(claim->batches);
    ck_assert_ptr_eq(stage.queue.holds.orphans, batch);
    ck_assert_ptr_nonnull(strstr(script.drop_reason, "has taken 1 of 2 locks"));
}
END_TEST

START_TEST(locks_that_the_session_did_not_free_go_with_it)
{
    size_t from = keep_straggler();
    stage_finish(slow, 1, LANE_DELIVERED);
    settle_at(NOW);
    bring_round(from, 0, 0);
    ck_assert_ptr_null(claim->batches); /* it is settled, all the same */
    ck_assert_ptr_nonnull(strstr(script.drop_reason, "has freed 0 of 1 locks"));
}
END_TEST

START_TEST(lost_connection_costs_the_locks_of_its_session)
{
    keep_straggler();
    script_brings(DB_DOWN);
    progress();
    ck_assert_ptr_null(claim->batches);
    ck_assert_ptr_eq(stage.queue.holds.orphans, batch);
    ck_assert_int_ge(slow->state, LANE_STOPPED);
}
END_TEST

/* Why a claim cannot keep its locks. */
static const struct {
    bool locks_rows, shared;
} unkept[] = {{true, false}, {false, true}};

START_TEST(transaction_that_has_to_wait_does_not_stand_still)
{
    stage.noting.ordering.locks_rows = unkept[_i].locks_rows;
    script.shared = unkept[_i].shared;
    claim->sent_at = NOW;
    claim_ready(&stage.queue, NULL, NOW + 60 * SECOND_US - 1);
    ck_assert_uint_eq(script.sends, 0);
    struct pollset *ps = pollset_new();
    claim_prepare(&stage.queue, ps, NOW + SECOND_US);
    ck_assert_int_eq(pollset_next_deadline(ps), NOW + 60 * SECOND_US);
    pollset_free(ps);
    claim_ready(&stage.queue, NULL, NOW + 60 * SECOND_US);
    assert_sent(0, (const char *const[]){sql_claim_rest, "end", NULL});
    bring_round(0, 0, 0);
    ck_assert_int_eq(claim->state, CLAIM_IDLE);
    ck_assert(claim->in_transaction);
    ck_assert_int_eq(claim->began_at, NOW - SECOND_US);
    ck_assert_ptr_eq(claim->batches, batch);
    ck_assert_int_eq(slow->state, LANE_OPEN);
    claim_ready(&stage.queue, NULL, NOW + 120 * SECOND_US - 1);
    ck_assert_uint_eq(script.sends, 2);
    claim_ready(&stage.queue, NULL, NOW + 120 * SECOND_US);
    assert_sent(2, (const char *const[]){sql_claim_rest, "end", NULL});
}
END_TEST

/* The part that commits may fail, and with it what was settled before in the same transaction. */
START_TEST(what_was_settled_in_parts_is_kept_until_that_is_committed)
{
    struct lane *next = lane_of("next", 3);
    stage_finish(next, 1, LANE_DELIVERED);
    batch->halving.most = 1;
    claim->began_at = NOW - 100 * MS_US;
    settle_at(NOW);
    bring_round(0, 0, 0);
    ck_assert_int_eq(claim->state, CLAIM_IDLE);
    ck_assert_int_eq(claim->settling, CLAIM_SETTLES_HALVES);
    ck_assert_int_eq(done->state, LANE_SETTLED);
    ck_assert_uint_eq(kept.key_count, 0);
    batch->halving.most = 1;
    settle_at(NOW + SECOND_US);
    ck_assert_uint_eq(kept.key_count, 3);
}
END_TEST

/* Its deletes would be undone with the transaction, and what others hold cannot be kept beyond it. */
START_TEST(what_has_begun_to_be_settled_behind_a_pooler_is_settled_in_its_transaction)
{
    script.shared = true;
    claim->settling = CLAIM_SETTLES_HALVES;
    slow->state = LANE_BLOCKED;
    batch->open--;
    batch->blocked++;
    claim_offer(&stage.queue, NOW);
    ck_assert(!stage.queue.claiming.offered[0]);
    settle_at(NOW);
    ck_assert_uint_eq(script_index("commit"), script.sends);
    bring_round(0, 0, 0);
    ck_assert_int_eq(done->state, LANE_SETTLED);
    stage_finish(lane_of("given back", 3), 0, LANE_RELEASED);
    size_t from = script.sends;
    stage.queue.pace.poll_at = NOW;
    settle_at(NOW);
    claim_ready(&stage.queue, NULL, NOW);
    ck_assert_uint_eq(script.sends, from);
    lane_move(slow, LANE_FINISHED);
    stage.queue.pace.poll_at = INSTANT_NEVER;
    settle_at(NOW);
    ck_assert_str_eq(script.sent[script.sends - 2], "commit");
    bring_round(from, 0, 0);
    ck_assert_ptr_null(claim->batches);
}
END_TEST

static void add_tests(TCase *tcase)
{
    tcase_add_checked_fixture(tcase, set_up_straggler, tear_down);
    tcase_add_test(tcase, what_was_settled_in_parts_is_kept_until_that_is_committed);
    tcase_add_test(tcase, what_has_begun_to_be_settled_behind_a_pooler_is_settled_in_its_transaction);
    tcase_add_test(tcase, straggler_is_kept_while_others_are_settled_and_more_keys_are_claimed);
    tcase_add_test(tcase, straggler_is_freed_when_it_is_settled);
    tcase_add_test(tcase, event_without_a_key_is_kept_by_its_id);
    tcase_add_test(tcase, straggler_with_nothing_beside_it_does_not_keep_its_transaction);
    tcase_add_test(tcase, transaction_of_a_straggler_that_is_kept_is_begun_anew_once_a_minute);
    tcase_add_test(tcase, lane_that_is_given_back_is_freed_though_nothing_is_written);
    tcase_add_test(tcase, claim_is_left_alone_while_nobody_has_waited_for_long);
    tcase_add_test(tcase, nothing_is_kept_behind_a_pooler);
    tcase_add_test(tcase, claim_beside_a_straggler_that_is_kept_waits_for_nothing);
    tcase_add_test(tcase, what_comes_beside_a_straggler_that_is_kept_is_claimed_at_once);
    tcase_add_test(tcase, claim_that_finds_nothing_beside_a_straggler_does_not_keep_its_transaction);
    tcase_add_loop_test(tcase, claims_beside_stragglers_are_bounded, 0, (int)(sizeof limits / sizeof limits[0]));
    tcase_add_loop_test(tcase, round_that_cannot_be_sent_loses_no_ack, 1, 10);
    tcase_add_test(tcase, settlement_that_fails_costs_no_lock_that_is_kept);
    tcase_add_test(tcase, claim_that_fails_costs_no_lock_that_is_kept);
    tcase_add_test(tcase, round_that_fails_before_a_lock_is_freed_does_not_forget_it);
    tcase_add_test(tcase, locks_of_which_nobody_knows_whether_the_session_took_them_go_with_it);
    tcase_add_test(tcase, locks_that_the_session_did_not_take_are_lost);
    tcase_add_test(tcase, locks_that_the_session_did_not_free_go_with_it);
    tcase_add_test(tcase, lost_connection_costs_the_locks_of_its_session);
    tcase_add_loop_test(tcase, transaction_that_has_to_wait_does_not_stand_still, 0, sizeof unkept / sizeof unkept[0]);
}

int main(void)
{
    Suite *suite = suite_create("claim_session_lock");
    TCase *tcase = tcase_create("claim_session_lock");
    suite_add_tcase(suite, tcase);
    add_tests(tcase);
    return run_suite(suite);
}
