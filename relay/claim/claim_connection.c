#include "relay/claim/claim_connection.h"

#include "relay/base/fault_point.h"
#include "relay/claim/claim_intake.h"
#include "relay/claim/claim_request.h"
#include "relay/claim/claim_send.h"
#include "relay/claim/claim_state.h"
#include "relay/deliver/outlet.h"
#include "relay/hold/lease.h"
#include "relay/hold/orphan.h"
#include "relay/hold/session_lock.h"
#include "relay/queue/pace.h"
#include "relay/queue/queue.h"
#include "relay/queue/report.h"
#include "relay/settle/blame.h"
#include "relay/settle/blocked.h"
#include "relay/settle/refusal.h"
#include "relay/settle/settle.h"
#include "relay/side/unreadable.h"
#include "sql_text.h"

#define TURN_BYTES ((size_t)8 * 1024 * 1024) /* of rows, that are read in one turn */

static const struct backoff claim_backoff = {.base_us = 100 * MS_US, .max_us = 5 * SECOND_US};

/* The locks of the claim's transaction are lost, and its session's locks only with `session`. */
static void lose_locks(struct claim *claim, bool session, instant_us now)
{
    FAULT_POINT("claim.lost");
    if (claim_holding(claim)->commits_before_delivery)
        lease_abandon(claim->queue, &claim->batches, claim->sent_at, now);
    claim->in_transaction = false;
    claim_forget_held(claim);
    orphan_make(claim->queue, &claim->batches, session, now);
    claim->settling = CLAIM_SETTLES_ALL;
}

/* `then` may be NULL. */
static void start_rollback(struct claim *claim, const char *sql, const char *then)
{
    struct error err;
    round_begin(&claim->round);
    claim->state = CLAIM_ROLLBACK;
    claim_note_asking(claim->queue);
    FAULT_POINT("claim.rollback");
    if (!db_send_sql(claim->db, sql, &err) || (then && !db_send_sql(claim->db, then, &err)) ||
        !db_end_round(claim->db, &err))
        db_drop(claim->db, false, err.text);
}

static void give_up_arriving(struct claim *claim, instant_us now)
{
    if (!claim->arriving)
        return;
    struct queue *queue = claim->queue;
    claim_follow_again(claim, now);
    claim_intake_end(&claim->plan, claim->arriving);
    queue->ordering->type->claim_failed(queue->ordering, &claim->plan);
    batch_free(claim->arriving);
    claim->arriving = NULL;
}

static void back_off(struct claim *claim, const struct sqlstate_rule *rule, instant_us now)
{
    struct queue *queue = claim->queue;
    claim->failures++;
    claim->retry_at = now + backoff_delay_us(&claim_backoff, claim->failures, &queue->rng);
    pace_poll_by(&queue->pace, claim->retry_at);
    if (!rule)
        return;
    if (rule->remedy == DB_SHRINK && queue->claiming.key_limit > 1)
        queue->claiming.key_limit /= 2;
    if (rule->remedy == DB_RECONNECT || rule->remedy == DB_UNPREPARED)
        db_drop(claim->db, rule->remedy == DB_UNPREPARED, claim->round.error.text);
}

static void go_back(struct claim *claim, instant_us now)
{
    give_up_arriving(claim, now);
    pace_poll_by(&claim->queue->pace, now);
    round_done(&claim->round);
    start_rollback(claim, sql_settle_undo, sql_settle_release);
}

/* A row that another session holds is waited for. Where the lock of its key cannot outlive the transaction, that stays
 * open and writes nothing, and the side connection settles the other finished lanes. */
static bool leave_to_side_connection(struct claim *claim, instant_us now)
{
    struct round *round = &claim->round;
    if (round->refusal != REFUSAL_BY_LOCK || claim->settling == CLAIM_SETTLES_HALVES ||
        !claim_holding(claim)->settles_beside_open_transaction)
        return false;
    claim->settling = CLAIM_SETTLES_NOTHING;
    report_settle_failed(claim->queue, &round->error);
    refusal_answer(claim->queue, round, now);
    go_back(claim, now);
    return true;
}

/* A row of it has been refused for itself, or may have been. */
static bool is_halving(const struct claim *claim)
{
    bool refused = false;
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        refused = refused || batch->refused_at > 0;
    return claim->settling == CLAIM_SETTLES_HALVES && refused;
}

/* The locks stay, and rows that pass are settled in this transaction. False: none passes. Then the transaction ends,
 * because whoever mends the table may need the table's lock. */
static bool settle_by_halves(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    struct round *round = &claim->round;
    bool first = !is_halving(claim);
    bool moved = round_may_have_moved_rows(round);
    if (leave_to_side_connection(claim, now))
        return true;
    claim_begin_halving(claim);
    bool again = refusal_answer(queue, round, now);
    if (!moved && (first || !again))
        report_settle_failed(queue, &round->error);
    if (!again)
        return false;
    go_back(claim, now);
    return true;
}

/* The transaction has committed: its locks have ended, and so have the session's locks of settled keys. */
static void take_commit(struct claim *claim, instant_us now)
{
    struct round *round = &claim->round;
    if (round->job)
        refusal_commit(claim->queue, round->job, now);
    round->job = NULL;
    for (struct batch *batch = claim->settling == CLAIM_SETTLES_HALVES ? claim->batches : NULL; batch;
         batch = batch->next)
        refusal_end_halving(batch);
    claim->settling = CLAIM_SETTLES_ALL;
    if (claim_holding(claim)->commits_before_delivery)
        lease_begin(claim->queue, &claim->batches, claim->sent_at, now);
    session_lock_settled(claim->batches);
    settle_free_batches(&claim->batches);
    claim_forget_held(claim);
    if (claim->batches && !holding_of_queue(claim->queue)->waits_for_blocked_rows)
        lose_locks(claim, false, now); /* what somebody else holds: its lock has ended with the transaction */
}

/* Lanes that are still held stay in a transaction. The server ends one that is idle for long, and with it its locks. */
static void start_again(struct claim *claim, instant_us now)
{
    claim->in_transaction = claim->batches != NULL;
    claim->has_read = false;
    claim->began_at = now;
    start_rollback(claim, "rollback", claim->in_transaction ? sql_claim_begin : NULL);
}

static void round_failed(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    struct round *round = &claim->round;
    FAULT_POINT("claim.failed");
    unreadable_claim_failed(queue, &claim->plan, round, now);
    bool refused = round_was_refused(round) && !unreadable_settle_failed(queue, round, now);
    if (refused && settle_by_halves(claim, now))
        return;
    bool committed = round->commit && round_reached(round, round->settle_end + 1);
    bool freed = round->unlock_count == 0 || round_reached(round, round_before_claim(round));
    if (committed) {
        take_commit(claim, now);
        report_claim_failed(queue, &round->error);
    } else if (round->job) {
        settle_abort(round->job);
        report_settle_failed(queue, &round->error);
    } else if (!refused) {
        report_claim_failed(queue, &round->error);
    }
    round->job = NULL;
    give_up_arriving(claim, now);
    back_off(claim, round->rule, now);
    lose_locks(claim, false, now);
    /* With their session go locks that should be free, and those of what cannot be settled; and those that
     * session_lock.sql has taken before it failed: a rollback leaves them. */
    bool astray = round->lock_count > 0 && !round_reached(round, 1) && claim_holding(claim)->survives_rollback;
    if (astray || (committed ? !freed : refused && claim->batches))
        db_drop(claim->db, false, round->error.text);
    round_done(round);
    start_again(claim, now);
}

/* Keys of which the claim returned as many events as it may, or whose events were cut off at the end. They
 * are followed, but not where other keys wait for the sink: there they take their turn. */
static void mark_unfinished_keys(const struct claim *claim, struct batch *batch, instant_us now)
{
    const struct claim_plan *plan = &claim->plan;
    struct ordering *ordering = claim->queue->ordering;
    for (struct lane *lane = batch->lanes; lane; lane = lane->next)
        if (!lane->key.data || (int64_t)lane->count < plan->key_limit)
            continue;
        else if (plan->behind)
            ordering->type->released(ordering, lane->last->event.id, SCAN_ID_MAX, now);
        else
            lane->more = true;
    if (plan->rows >= plan->rows_limit && batch->lanes_end && batch->lanes_end->key.data)
        batch->lanes_end->more = true;
}

static void take_arriving(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    struct batch *batch = claim->arriving;
    bool found = batch->lane_count > 0;
    FAULT_POINT("claim.arrived");
    claim_intake_end(&claim->plan, batch);
    queue->ordering->type->claim_done(queue->ordering, &claim->plan, now - claim->sent_at, now);
    mark_unfinished_keys(claim, batch, now);
    if (batch->found_paused)
        queue_found_paused(queue, now);
    report_claimed(queue, claim->index, &claim->plan, batch, now - claim->sent_at);
    if (claim->plan.truncated)
        claim_follow_again(claim, now);
    claim->arriving = NULL;
    holds_push(&claim->batches, batch);
    claim_follow_missed(claim, now);
    pace_claimed(queue, claim_intake_pace(claim, batch), now);
    if (queue->claiming.key_limit < queue->config->keys_per_claim)
        queue->claiming.key_limit++;
    claim_note_laneless(claim, batch);
    if (!found) {
        batch_free(holds_pop(&claim->batches));
        return;
    }
    batch->sent_at = claim->sent_at;
    if (batch->event_count > 0)
        unreadable_claimed(queue);
    queue->claiming.keys_locked = claim->plan.locked;
    orphan_drop(queue, batch, now);
    if (batch->open > 0)
        blame_note_claim(queue, now);
    if (claim_holding(claim)->commits_before_delivery)
        return; /* it has arrived when it is leased */
    batch->arrived_next = queue->arrived;
    queue->arrived = batch;
}

static void round_succeeded(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    struct round *round = &claim->round;
    claim->failures = 0;
    if (round->commit) {
        FAULT_POINT("claim.committed");
        take_commit(claim, now);
        claim->in_transaction = round->begin;
    } else {
        if (round->job)
            refusal_commit(queue, round->job, now);
        round->job = NULL;
        claim_free_settled(claim);
    }
    if (round->begin)
        claim->began_at = now;
    claim->has_read = round->claim || (claim->has_read && !round->commit);
    if (round->claim)
        take_arriving(claim, now);
    round_done(round);
    claim->state = CLAIM_IDLE;
    claim_note_asking(queue);
}

static void take_result(struct claim *claim, const struct db_result *result)
{
    struct round *round = &claim->round;
    if (!round_take(round, result->index, result->res) || round->failed)
        return;
    FAULT_POINT("claim.result");
    if (claim_intake_take(claim, result->index, result->res, &round->error))
        return;
    round->failed = true;
    round->failed_at = result->index;
    round->rule = sqlstate_rule("XX000");
}

static void connection_lost(struct claim *claim, const struct error *err, instant_us now)
{
    struct round *round = &claim->round;
    if (claim->state != CLAIM_OFF)
        report_disconnected(claim->queue, "claim", err);
    else
        report_unreachable(claim->queue, "claim", err, &claim->queue->trouble);
    if (round->job) {
        settle_abort(round->job); /* committed or not: the rows tell, and a second delete of the same ids is harmless */
        round->job = NULL;
    }
    if (round->arena) {
        give_up_arriving(claim, now);
        round_done(round);
    }
    /* Connecting works, claiming does not: without a wait this would go round and round. */
    if (claim->state == CLAIM_BUSY)
        back_off(claim, NULL, now);
    lose_locks(claim, true, now);
    claim->state = CLAIM_OFF;
    claim_note_asking(claim->queue);
    pace_poll_by(&claim->queue->pace, now);
}

static void round_ended(struct claim *claim, instant_us now)
{
    if (claim->state == CLAIM_ROLLBACK) {
        round_done(&claim->round);
        claim->state = CLAIM_IDLE;
    } else if (claim->round.failed) {
        round_failed(claim, now);
    } else {
        round_succeeded(claim, now);
    }
}

/* Rows that come as fast as they are read must not keep the loop from all else. */
static bool is_enough(struct claim *claim, size_t *bytes)
{
    const struct batch *batch = claim->arriving;
    size_t sum = batch ? batch->bytes + batch->spilled_bytes : 0;
    if (*bytes == 0 || sum < *bytes)
        *bytes = sum;
    claim->unread = sum - *bytes > TURN_BYTES;
    return claim->unread;
}

void claim_connection_progress(struct claim *claim, const struct pollset *ps, instant_us now)
{
    struct db_result result;
    struct error err;
    size_t bytes = 0;
    while (!is_enough(claim, &bytes)) {
        switch (db_progress(claim->db, ps, now, &result, &err)) {
        case DB_NOTHING:
            return;
        case DB_UP:
            report_connected(claim->queue, "claim");
            claim->queue->trouble = 0;
            claim->state = CLAIM_IDLE;
            side_requests_probe(&claim->queue->side_requests);
            break;
        case DB_RESULT:
            if (claim->state == CLAIM_BUSY)
                take_result(claim, &result);
            PQclear(result.res);
            break;
        case DB_ROUND_END:
            round_ended(claim, now);
            break;
        case DB_DOWN:
            connection_lost(claim, &err, now);
            return;
        }
    }
}
