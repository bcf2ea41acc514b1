#include "relay/claim/claim.h"

#include "relay/base/fault_point.h"
#include "relay/claim/ahead.h"
#include "relay/claim/claim_connection.h"
#include "relay/claim/claim_request.h"
#include "relay/claim/claim_send.h"
#include "relay/claim/claim_wait.h"
#include "relay/claim/peek.h"
#include "relay/deliver/outlet.h"
#include "relay/queue/queue.h"
#include "relay/queue/report.h"
#include "relay/settle/blocked.h"
#include "relay/settle/round.h"
#include "relay/settle/settle.h"
#include "relay/table/table.h"

#define STRAGGLER_US (50 * MS_US)
#define HELD_SPARE 4 /* times keys_per_claim: a key that is claimed again is counted in its lane, too */
#define SILENT_MAX_US (60 * SECOND_US) /* well before idle_in_transaction_session_timeout, see session_settings.sql */
#define PART_US (1 * SECOND_US)
#define LEAN_EVENTS 2
#define LEAN_US (STRAGGLER_US / 2)
#define SETTLE_WAIT_US (10 * MS_US)

void claim_open(struct queue *queue, struct claim *claim, size_t index)
{
    struct db_options options = {
        .conninfo = queue->process->database,
        .application_name = "pgcourier",
        .prepared = queue->process->prepared,
        .statement_timeout_us = queue->process->statement_timeout_us,
        .lock_timeout_us = db_lock_timeout_us(queue->process->statement_timeout_us),
        .read_write = true,
        .seed = rng_next(&queue->rng),
    };
    *claim = (struct claim){.queue = queue, .index = index, .db = db_new(&options)};
    keyset_init(&claim->held, (size_t)queue->config->keys_per_claim * (CLAIM_LOCKS_FACTOR + HELD_SPARE));
}

void claim_close(struct claim *claim)
{
    if (claim->round.job)
        settle_abort(claim->round.job);
    if (claim->round.arena)
        round_done(&claim->round);
    batch_free(claim->arriving);
    for (struct batch *batch; (batch = claim->batches);) {
        claim->batches = batch->next;
        batch_free(batch);
    }
    keyset_done(&claim->held);
    db_free(claim->db);
}

/* Lanes that are under way, or whose rows another session holds. */
static size_t open_lanes(const struct claim *claim)
{
    size_t n = 0;
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        n += batch->open + batch->blocked;
    return n;
}

bool claim_is_finished(const struct claim *claim)
{
    /* A transaction that settles its own rows at its end must not wait for one row that another session has locked. */
    bool waits = holding_of_queue(claim->queue)->waits_for_blocked_rows;
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        if (batch->unsettled > batch->finished + (waits ? 0 : batch->blocked) || batch->in_settlement > 0)
            return false;
    return true;
}

/* Deliveries that are under way then take long. */
static instant_us straggles_at(const struct claim *claim)
{
    return claim->began_at + STRAGGLER_US;
}

static bool is_straggling(const struct claim *claim, instant_us now)
{
    return open_lanes(claim) > 0 && now >= straggles_at(claim);
}

static bool needs_side(const struct claim *claim, instant_us now)
{
    /* A busy queue claims again and again: what is finished must not wait for a pause. */
    bool extending = claim->state == CLAIM_BUSY && claim->round.claim && !claim->round.begin;
    return (claim->state == CLAIM_IDLE || extending) &&
           (claim->settling == CLAIM_SETTLES_NOTHING || is_straggling(claim, now)) &&
           claim->settling != CLAIM_SETTLES_HALVES && claim_holding(claim)->settles_beside_open_transaction;
}

void claim_offer(struct queue *queue, instant_us now)
{
    for (size_t i = 0; i < queue->claim_count; i++)
        queue->claiming.offered[i] = needs_side(&queue->claims[i], now);
}

/* The database has refused to settle some of its lanes: they are settled a few at a time, before the transaction ends.
 */
static bool was_refused(const struct claim *claim)
{
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        if (batch->halving.most > 0 && batch->finished + batch->in_settlement > 0)
            return true;
    return false;
}

/* Finished lanes are left that the settlement had no room for. */
static bool leaves_some(const struct claim *claim)
{
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        if (batch->finished > 0)
            return true;
    return false;
}

static void note_lean(struct claim *claim, instant_us now)
{
    size_t events = 0, lanes = 0;
    for (const struct batch *batch = claim->batches; batch; batch = batch->next) {
        events += batch->event_count;
        lanes += batch->lane_count;
    }
    claim->queue->claiming.lean = events <= lanes * LEAN_EVENTS && now - claim->began_at < LEAN_US;
}

/* Of what stays in memory as long as a straggler of theirs is under way. */
static size_t bytes_held(const struct claim *claim)
{
    size_t bytes = 0;
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        bytes += batch->open + batch->blocked > 0 ? batch->bytes : 0;
    return bytes;
}

/* How many keys may be claimed beside stragglers whose locks the session has; 0: none. */
static int64_t keys_beside(struct claim *claim, instant_us now)
{
    const struct queue *queue = claim->queue;
    size_t cap = (size_t)queue->config->keys_per_claim, open = open_lanes(claim), most = cap * CLAIM_LOCKS_FACTOR;
    bool room = open < most && bytes_held(claim) <= (size_t)queue->config->max_batch_bytes * (HELD_BYTES_FACTOR - 1);
    if (!room || (open > cap / 2 && !outlet_has_room(queue->outlet)))
        return 0;
    int64_t keys = claim_wait(claim, now).keys;
    FAULT_POINT("claim.beside");
    return keys < (int64_t)(most - open) ? keys : (int64_t)(most - open);
}

/* Its transaction has nothing left to wait for but stragglers from before it. */
static bool waits_for_session_locks_only(const struct claim *claim)
{
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        if (batch->hold != HOLD_SESSION && batch->open + batch->blocked > 0)
            return false;
    return true;
}

/* A settlement travels with the next claim, where that is to go soon: at 200 events/s that spares four round trips of
 * ten. While few events come and each is announced, no claim is to go: a look is enough (rest.h). */
static instant_us settles_at(struct claim *claim, instant_us now)
{
    bool may_wait = claim->settling == CLAIM_SETTLES_ALL && claim->batches && claim_is_finished(claim) &&
                    !claim_holding(claim)->commits_before_delivery;
    bool announced = claim->queue->rest.state == REST_ROUSED && claim->queue->pace.took_all;
    if (!may_wait || announced)
        return now;
    struct claim_wait wait = claim_wait(claim, now);
    bool soon = wait.reason == CLAIM_WAITS_FOR_PACE && wait.until <= claim->sent_at + SETTLE_WAIT_US;
    return soon ? wait.until : now;
}

/* All lanes are finished, or all that are left are stragglers whose locks can be kept. Where keys are leased: it has
 * brought some. */
static bool is_due(struct claim *claim, instant_us now)
{
    if (claim->state != CLAIM_IDLE || !claim->batches || !db_is_idle(claim->db) || now < claim->retry_at)
        return false;
    if (claim->settling == CLAIM_SETTLES_NOTHING && batch_unsettled(claim->batches) > 0)
        return false;
    if (claim_holding(claim)->commits_before_delivery || claim_is_finished(claim))
        return now >= settles_at(claim, now);
    /* A settlement that has begun in this transaction ends in it: rows that other sessions hold come last. */
    if (!claim_holding(claim)->outlives_transaction)
        return claim->settling == CLAIM_SETTLES_HALVES && leaves_some(claim);
    return is_straggling(claim, now) ||
           (waits_for_session_locks_only(claim) && (claim->has_read || keys_beside(claim, now) > 0));
}

/* So that keys with more events are in the claim that travels with their settlement. */
static void follow_delivered(struct claim *claim, const struct settle_job *job, instant_us now)
{
    for (size_t i = 0; i < job->lane_count; i++) {
        struct lane *lane = job->lanes[i];
        if (lane->more && lane->state == LANE_SETTLING && lane->outcome == LANE_DELIVERED &&
            keyset_put(&claim->queue->keys.more, lane->key, lane->hash, now, claim))
            lane->more = false;
    }
}

/* A settlement by halves is one transaction, because the locks of the other lanes end with it. If the session has taken
 * them, the transaction may end before. */
static bool may_commit_part(const struct claim *claim, instant_us now)
{
    return claim_holding(claim)->outlives_transaction && (!was_refused(claim) || now - claim->began_at >= PART_US);
}

void claim_finish(struct claim *claim, instant_us now)
{
    if (claim_holding(claim)->commits_before_delivery) {
        claim_send_round(claim, NULL, true, claim_wait(claim, now).keys, now);
        return;
    }
    bool finished = claim_is_finished(claim), let_go = claim->has_read;
    claim->full = false;
    FAULT_POINT("claim.finish");
    struct settle_job *job;
    for (; (job = settle_collect(claim->queue, claim->batches, !finished)) && settle_is_empty(job); let_go = true)
        settle_commit(claim->queue, job, now);
    bool has_to_last =
        !finished && !claim_holding(claim)->outlives_transaction; /* the transaction, for what somebody else holds */
    if (job && (was_refused(claim) || leaves_some(claim) || has_to_last)) {
        claim_send_round(claim, job, may_commit_part(claim, now), 0, now);
        return;
    }
    if (has_to_last)
        return;
    if (job)
        follow_delivered(claim, job, now);
    if (finished)
        note_lean(claim, now);
    int64_t keys = finished ? claim_wait(claim, now).keys : keys_beside(claim, now);
    /* DDL on the table waits for every transaction that has read it: so the transaction does not last as long as a
     * straggler, whether it has found events or not. And the server would end a transaction that is idle for long,
     * and with its session the locks. */
    bool stale = now - claim->began_at >= SILENT_MAX_US;
    if (finished || job || let_go || claim->settling == CLAIM_SETTLES_HALVES || keys > 0 || stale)
        claim_send_round(claim, job, true, keys, now);
}

/* Keys whose retry is due may exceed the limit a little. claim->held must have room for all locks that the claim holds
 * and for those of one more claim. */
static bool has_room(const struct claim *claim, size_t locks)
{
    return locks + (size_t)claim->queue->config->keys_per_claim <= claim->held.max;
}

/* How many of `keys` may be claimed into a transaction that a straggler keeps open, where session locks cannot be
 * taken. */
static int64_t keys_to_extend(struct claim *claim, int64_t keys, instant_us now)
{
    size_t cap = (size_t)claim->queue->config->keys_per_claim;
    size_t locks = claim_count_held(claim);
    if (!claim_holding(claim)->extends_open_transaction || claim->settling == CLAIM_SETTLES_HALVES ||
        !is_straggling(claim, now) || open_lanes(claim) > cap / 2 || !has_room(claim, locks))
        return 0;
    claim->full = locks >= cap * CLAIM_LOCKS_FACTOR;
    /* No other claim can have the keys whose locks it holds, and they take no new locks. */
    size_t room = claim->full ? claim_count_followed(claim) : cap * CLAIM_LOCKS_FACTOR - locks;
    return (int64_t)room < keys ? (int64_t)room : keys;
}

/* When its connection has been silent for long in a transaction that has to wait for a delivery, because session locks
 * cannot be taken: the server, or a pooler, ends idle transactions, and another relay would deliver the same. */
static instant_us silent_until(const struct claim *claim)
{
    bool waits = claim->state == CLAIM_IDLE && claim->in_transaction && claim->batches &&
                 !claim_holding(claim)->outlives_transaction;
    return waits ? claim->sent_at + SILENT_MAX_US : INSTANT_NEVER;
}

/* It has nothing to wait for but a reason to claim. */
static bool may_start(const struct claim *claim)
{
    return claim->state == CLAIM_IDLE && db_is_idle(claim->db) && !claim->batches;
}

/* The next claim is to take the settlement of another one along. */
static bool is_left_to_another(const struct claim *claim, instant_us now)
{
    const struct queue *queue = claim->queue;
    for (size_t i = 0; i < queue->claim_count; i++)
        if (&queue->claims[i] != claim && is_due(&queue->claims[i], now) && claim_is_finished(&queue->claims[i]))
            return true;
    return false;
}

static void start_claim(struct claim *claim, instant_us now)
{
    if (claim->state != CLAIM_IDLE || !db_is_idle(claim->db))
        return;
    bool holding = claim->batches != NULL;
    if (holding && claim_holding(claim)->outlives_transaction)
        return; /* claim_finish() claims for it */
    int64_t keys = is_left_to_another(claim, now) ? 0 : claim_wait(claim, now).keys;
    if (!claim->in_transaction && keys > 0 && peek_first(claim->queue, now))
        return;
    if (holding && keys > 0)
        keys = keys_to_extend(claim, keys, now);
    bool commit = !holding && claim->in_transaction;
    if (keys > 0 || commit || now >= silent_until(claim))
        claim_send_round(claim, NULL, commit, keys, now);
}

/* A claim may return keys that another claim of ours has just lost. The server ends that one's connection before it
 * gives them away, but maybe after poll(2): before anything is delivered, all connections are looked at again. */
static void look_again(struct queue *queue, instant_us now)
{
    for (const struct batch *seen = NULL; queue->arrived != seen;) {
        seen = queue->arrived;
        for (size_t i = 0; i < queue->claim_count; i++)
            claim_connection_progress(&queue->claims[i], NULL, now);
    }
}

void claim_ready(struct queue *queue, const struct pollset *ps, instant_us now)
{
    ahead_turn(queue, now);
    blocked_wake(queue, now);
    for (size_t i = 0; i < queue->claim_count; i++)
        claim_connection_progress(&queue->claims[i], ps, now);
    look_again(queue, now);
    for (size_t i = 0; i < queue->claim_count; i++)
        start_claim(&queue->claims[i], now);
}

/* An instant that has passed ends no wait: that one waits for something else than time. */
static void wake_at(struct pollset *ps, instant_us at, instant_us now)
{
    if (at > now)
        pollset_deadline(ps, at);
}

static void note_reason(struct claim *claim, struct claim_wait wait, instant_us now)
{
    const char *reason = claim_waits_for(wait.reason);
    if (reason == claim->logged_reason || wait.reason == CLAIM_WAITS_FOR_NOTHING)
        return;
    claim->logged_reason = reason;
    report_claim_waits(claim->queue, claim->index, reason, wait.until, now);
}

static void prepare_claim(struct claim *claim, struct pollset *ps, instant_us now)
{
    db_prepare(claim->db, ps);
    if (claim->unread)
        pollset_deadline(ps, 0);
    if (claim->state != CLAIM_IDLE)
        return; /* its answer wakes the loop */
    struct claim_wait wait = claim_wait(claim, now);
    wake_at(ps, wait.until, now);
    if (wait.keys > 0) /* since its step of this turn, as a later step has found a reason */
        wake_at(ps, may_start(claim) ? now + 1 : claim->queue->pace.poll_at, now);
    note_reason(claim, wait, now);
    wake_at(ps, silent_until(claim), now);
    wake_at(ps, settles_at(claim, now), now);
    if (batch_unsettled(claim->batches) > 0) {
        wake_at(ps, claim->retry_at, now);
        wake_at(ps, straggles_at(claim), now);
    }
}

void claim_prepare(struct queue *queue, struct pollset *ps, instant_us now)
{
    wake_at(ps, blocked_wake_at(queue), now);
    for (size_t i = 0; i < queue->claim_count; i++)
        prepare_claim(&queue->claims[i], ps, now);
}

static void retry_at_once(struct queue *queue, instant_us now)
{
    for (size_t i = 0; queue->wakeups.failed_claims && i < queue->claim_count; i++)
        queue->claims[i].retry_at = now;
    queue->wakeups.failed_claims = false;
}

void claim_settle_resolved(struct queue *queue, instant_us now)
{
    retry_at_once(queue, now);
    for (size_t i = 0; i < queue->claim_count; i++) {
        struct claim *claim = &queue->claims[i];
        if (claim->state == CLAIM_IDLE)
            claim_free_settled(claim); /* on the side connection */
        if (is_due(claim, now))
            claim_finish(claim, now);
    }
}
