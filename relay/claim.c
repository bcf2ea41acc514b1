#include "relay/claim.h"

#include "relay/claim_request.h"
#include "relay/deliver.h"
#include "relay/report.h"
#include "relay/round.h"
#include "relay/settle.h"
#include "sql_text.h"

#include <stdio.h>
#include <stdlib.h>

#define STRAGGLER_US (50 * MS_US)
#define LOCKS_FACTOR 4 /* one transaction may come to hold this many times keys_per_claim locks */

static const struct backoff claim_backoff = {.base_us = 100 * MS_US, .max_us = 5 * SECOND_US};

void claim_open(struct queue *queue, struct claim *claim, size_t index)
{
    struct db_options options = {
        .conninfo = queue->process->database,
        .application_name = "pgcourier",
        .prepared = queue->process->prepared,
        .statement_timeout_us = queue->process->statement_timeout_us,
        .read_write = true,
        .seed = rng_next(&queue->rng),
    };
    *claim = (struct claim){.queue = queue, .index = index, .db = db_new(&options)};
    keyset_init(&claim->held, (size_t)queue->config->keys_per_claim * (LOCKS_FACTOR + 1));
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

static size_t open_lanes(const struct claim *claim)
{
    size_t n = 0;
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        n += batch->open;
    return n;
}

static size_t unsettled_lanes(const struct claim *claim)
{
    size_t n = 0;
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        n += batch->unsettled;
    return n;
}

bool claim_is_finished(const struct claim *claim)
{
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        if (batch->unsettled > batch->finished || batch->in_settlement > 0)
            return false;
    return true;
}

bool claim_is_straggling(const struct claim *claim, instant_us now)
{
    return claim->state == CLAIM_IDLE && open_lanes(claim) > 0 && now - claim->began_at >= STRAGGLER_US;
}

/* ---- rounds ---- */

static bool send_claim(struct claim *claim, bool holding, int64_t keys, instant_us now, struct error *err)
{
    struct queue *queue = claim->queue;
    const struct claim_request *request = claim_request_make(claim, holding, keys, now);
    struct statement statements[ORDERING_STATEMENTS_MAX];
    size_t n =
        queue->ordering->type->claim(queue->ordering, request, now, claim->round.arena, statements, &claim->plan);
    claim->round.claim = true;
    claim->arriving = batch_new((size_t)queue->config->max_batch_bytes, claim);
    for (size_t i = 0; i < n; i++)
        if (!db_send(claim->db, &statements[i], err))
            return false;
    return true;
}

static void reset_poll(struct queue *queue)
{
    queue->poll_at = INSTANT_NEVER; /* until the answer is here: one claim at a time asks when nothing is known */
    queue->metrics.claims++;
}

/* Settles `job` (NULL: nothing) and commits, when `commit`; claims `keys` keys, unless 0. */
static void start_round(struct claim *claim, struct settle_job *job, bool commit, int64_t keys, instant_us now)
{
    struct error err;
    struct round *round = &claim->round;
    round_begin(round);
    claim->sent_at = now;
    bool ok = !job || round_add_settlement(round, claim->db, claim->queue->ordering, job, &err);
    round->job = job;
    round->commit = commit;
    ok = ok && (!commit || db_send_sql(claim->db, "commit", &err));
    if (keys > 0) {
        bool begin = commit || !claim->in_transaction;
        round->begin = begin;
        ok = ok && (!begin || db_send_sql(claim->db, sql_claim_begin, &err)) &&
             send_claim(claim, !begin, keys, now, &err);
        reset_poll(claim->queue);
    }
    ok = ok && db_end_round(claim->db, &err);
    claim->in_transaction = true;
    claim->state = CLAIM_BUSY;
    if (!ok)
        db_drop(claim->db, false, err.text);
}

static void start_rollback(struct claim *claim)
{
    struct error err;
    round_begin(&claim->round);
    claim->state = CLAIM_ROLLBACK;
    if (!db_send_sql(claim->db, "rollback", &err) || !db_end_round(claim->db, &err))
        db_drop(claim->db, false, err.text);
}

/* ---- how rounds end ---- */

/* The locks are gone: nothing more of what they covered is sent. */
static void lose_batches(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    size_t events = 0, in_flight = 0;
    while (claim->batches) {
        struct batch *batch = claim->batches;
        claim->batches = batch->next;
        batch->lost = true;
        for (struct lane *lane = batch->lanes; lane; lane = lane->next) {
            events += lane->state < LANE_SETTLED ? lane->count : 0;
            in_flight += lane->in_flight;
            if (lane->state < LANE_FINISHED)
                deliver_stop(lane, 0, now);
        }
        batch->next = queue->orphans;
        queue->orphans = batch;
    }
    claim->in_transaction = false;
    claim_forget_held(claim);
    if (events > 0) {
        queue->metrics.lost++;
        report_lost(queue, events, in_flight);
    }
}

static void give_up_arriving(struct claim *claim, instant_us now)
{
    if (!claim->round.claim || !claim->arriving)
        return;
    struct queue *queue = claim->queue;
    claim_follow_again(claim, now);
    queue->ordering->type->claim_failed(queue->ordering, &claim->plan);
    batch_free(claim->arriving);
    claim->arriving = NULL;
}

static void back_off(struct claim *claim, const struct sqlstate_rule *rule, instant_us now)
{
    struct queue *queue = claim->queue;
    claim->failures++;
    claim->retry_at = now + backoff_delay_us(&claim_backoff, claim->failures, &queue->rng);
    queue->poll_at = instant_min(queue->poll_at, claim->retry_at);
    if (!rule)
        return;
    if (rule->remedy == DB_SHRINK && queue->key_limit > 1)
        queue->key_limit /= 2;
    if (rule->remedy == DB_RECONNECT || rule->remedy == DB_UNPREPARED)
        db_drop(claim->db, rule->remedy == DB_UNPREPARED, claim->round.error.text);
}

static size_t statements_before_claim(const struct round *round)
{
    return round->settle_count + round->commit + round->begin;
}

static void round_failed(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    struct round *round = &claim->round;
    bool committed = round->commit && round_reached(round, round->settle_count + 1);
    if (committed) {
        if (round->job)
            settle_commit(queue, round->job, now);
        settle_free_batches(&claim->batches);
        report_claim_failed(queue, &round->error);
    } else {
        if (round->job)
            settle_abort(round->job);
        if (round->job)
            report_settle_failed(queue, &round->error);
        else
            report_claim_failed(queue, &round->error);
    }
    round->job = NULL;
    give_up_arriving(claim, now);
    back_off(claim, round->rule, now);
    round_done(round);
    lose_batches(claim, now);
    start_rollback(claim);
}

static void plan_next_poll(struct queue *queue, bool found, instant_us now)
{
    const struct queue_config *config = queue->config;
    queue->work_known = found;
    if (found) {
        queue->idle_us = config->poll_min_us;
    } else {
        queue->metrics.empty_claims++;
        queue->idle_us = queue->idle_us * 2 > config->poll_max_us ? config->poll_max_us : queue->idle_us * 2;
    }
    int64_t jitter = (int64_t)(rng_next(&queue->rng) % (uint64_t)(queue->idle_us / 4 + 1));
    queue->poll_at = now + queue->idle_us - jitter;
}

/* `lane` was read by a claim sent at `sent_at`; does `orphan` have events of the same key that were not, or not yet,
 * settled at that time? */
static bool is_orphaned(const struct lane *lane, const struct lane *orphan, instant_us sent_at)
{
    if (orphan->state == LANE_SETTLED && orphan->settled_at < sent_at)
        return false;
    if (!lane->key.data)
        return !orphan->key.data && lane->last->event.id == orphan->last->event.id;
    return lane->hash == orphan->hash && span_equal(lane->key, orphan->key);
}

/* A claim of ours that was on its way when another one was lost may have got the other's keys. We know better than
 * the table what became of their events, so these lanes are given back. */
static void drop_orphaned(const struct queue *queue, struct batch *arriving, instant_us sent_at, instant_us now)
{
    for (const struct batch *batch = queue->orphans; batch; batch = batch->next)
        for (const struct lane *orphan = batch->lanes; orphan; orphan = orphan->next)
            for (struct lane *lane = arriving->lanes; lane; lane = lane->next)
                if (is_orphaned(lane, orphan, sent_at))
                    deliver_stop(lane, 0, now);
}

static void take_arriving(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    struct batch *batch = claim->arriving;
    bool found = batch->lane_count > 0;
    queue->ordering->type->claim_done(queue->ordering, &claim->plan, batch, now - claim->sent_at, now);
    report_claimed(claim, batch, now - claim->sent_at);
    if (claim->plan.truncated)
        claim_follow_again(claim, now);
    claim->arriving = NULL;
    claim_follow_missed(claim, now);
    plan_next_poll(queue, found, now);
    if (queue->key_limit < queue->config->keys_per_claim)
        queue->key_limit++;
    if (!found) {
        batch_free(batch);
        return;
    }
    drop_orphaned(queue, batch, claim->sent_at, now);
    batch->claimed_at = now;
    batch->next = claim->batches;
    claim->batches = batch;
    batch->arrived_next = queue->arrived;
    queue->arrived = batch;
    if (!claim->round.begin)
        claim_note_held(claim);
}

static void round_succeeded(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    struct round *round = &claim->round;
    claim->failures = 0;
    if (round->job)
        settle_commit(queue, round->job, now);
    round->job = NULL;
    settle_free_batches(&claim->batches);
    if (round->commit) {
        claim->in_transaction = round->begin;
        claim_forget_held(claim);
    }
    if (round->begin)
        claim->began_at = now;
    if (round->claim)
        take_arriving(claim, now);
    round_done(round);
    claim->state = CLAIM_IDLE;
}

static void take_result(struct claim *claim, const struct db_result *result)
{
    struct round *round = &claim->round;
    struct ordering *ordering = claim->queue->ordering;
    if (!round_take(round, result->index, result->res) || round->failed)
        return;
    if (result->index < round->settle_count) {
        ordering->type->settled(ordering, &round->job->settlement, result->index, result->res, &round->job->missing);
        return;
    }
    size_t first = statements_before_claim(round);
    if (!round->claim || result->index < first)
        return;
    if (!ordering->type->claimed(ordering, &claim->plan, result->index - first, result->res, claim->arriving,
                                 &round->error)) {
        round->failed = true;
        round->failed_at = result->index;
        round->rule = sqlstate_rule("XX000");
    }
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
    if (claim->state ==
        CLAIM_BUSY) /* connecting works, claiming does not: without a wait this would go round and round */
        back_off(claim, NULL, now);
    lose_batches(claim, now);
    claim->state = CLAIM_OFF;
    claim->queue->poll_at = instant_min(claim->queue->poll_at, now);
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

static void take_events(struct claim *claim, const struct pollset *ps, instant_us now)
{
    struct db_result result;
    struct error err;
    for (;;) {
        switch (db_progress(claim->db, ps, now, &result, &err)) {
        case DB_NOTHING:
            return;
        case DB_UP:
            report_connected(claim->queue, "claim");
            claim->queue->trouble = 0;
            claim->state = CLAIM_IDLE;
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

/* ---- when to claim ---- */

/* Settlements that failed or whose claim was lost come first: without them, claiming would pile up deliveries that
 * nobody writes down. */
static bool orphans_wait(const struct queue *queue)
{
    for (const struct batch *batch = queue->orphans; batch; batch = batch->next)
        if (batch->finished > 0)
            return true;
    return false;
}

static bool has_reason(const struct claim *claim, instant_us now)
{
    const struct queue *queue = claim->queue;
    return now >= queue->poll_at || queue->ordering->type->pending(queue->ordering, now) || claim_has_followed(claim);
}

/* How many keys to claim now; 0: none. */
static int64_t keys_to_claim(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    if (queue->stopping || !queue->side.probed || now < claim->retry_at || orphans_wait(queue) ||
        !has_reason(claim, now))
        return 0;
    int64_t wanted = outlet_keys_wanted(queue->outlet, queue->route, now);
    if (wanted == 0)
        return 0;
    int64_t limit = queue->key_limit;
    return wanted < limit ? wanted : limit;
}

void claim_finish(struct claim *claim, instant_us now)
{
    struct settle_job *job = settle_collect(claim->queue, claim->batches, false);
    if (job && settle_is_empty(job)) {
        settle_commit(claim->queue, job, now);
        job = NULL;
    }
    if (job) /* so that its keys with more events are in the next claim */
        for (size_t i = 0; i < job->lane_count; i++)
            if (job->lanes[i]->more && job->lanes[i]->outcome == LANE_DELIVERED && job->lanes[i]->key.data &&
                keyset_put(&claim->queue->follow, job->lanes[i]->key, job->lanes[i]->hash, now, claim))
                job->lanes[i]->more = false;
    start_round(claim, job, true, keys_to_claim(claim, now), now);
}

/* How many of `keys` may be claimed into a transaction that a straggler keeps open. */
static int64_t keys_to_extend(const struct claim *claim, int64_t keys, instant_us now)
{
    size_t cap = (size_t)claim->queue->config->keys_per_claim;
    if (!claim_is_straggling(claim, now) || open_lanes(claim) > cap / 2)
        return 0;
    size_t room = cap * LOCKS_FACTOR > claim->held.count ? cap * LOCKS_FACTOR - claim->held.count : 0;
    return (int64_t)room < keys ? (int64_t)room : keys;
}

static void start_claim(struct claim *claim, instant_us now)
{
    if (claim->state != CLAIM_IDLE || !db_is_idle(claim->db))
        return;
    bool holding = claim->batches != NULL;
    int64_t keys = keys_to_claim(claim, now);
    if (holding && keys > 0)
        keys = keys_to_extend(claim, keys, now);
    if (holding && keys > 0)
        claim_note_held(claim);
    if (keys > 0)
        start_round(claim, NULL, false, keys, now);
    else if (!holding && claim->in_transaction)
        start_round(claim, NULL, true, 0, now);
}

void claim_ready(struct queue *queue, const struct pollset *ps, instant_us now)
{
    for (size_t i = 0; i < queue->claim_count; i++) {
        take_events(&queue->claims[i], ps, now);
        start_claim(&queue->claims[i], now);
    }
}

void claim_prepare(struct queue *queue, struct pollset *ps, instant_us now)
{
    for (size_t i = 0; i < queue->claim_count; i++) {
        struct claim *claim = &queue->claims[i];
        db_prepare(claim->db, ps);
        if (claim->retry_at > now)
            pollset_deadline(ps, claim->retry_at);
        if (claim->state == CLAIM_IDLE && claim->batches && unsettled_lanes(claim) > 0 &&
            now - claim->began_at < STRAGGLER_US)
            pollset_deadline(ps, claim->began_at + STRAGGLER_US);
    }
}
