#include "relay/side/side.h"

#include "relay/base/fault_point.h"
#include "relay/base/lesser.h"
#include "relay/hold/lease.h"
#include "relay/hold/orphan.h"
#include "relay/queue/holding.h"
#include "relay/queue/pace.h"
#include "relay/queue/queue.h"
#include "relay/queue/report.h"
#include "relay/settle/blocked.h"
#include "relay/settle/refusal.h"
#include "relay/settle/settle.h"
#include "relay/side/rest_question.h"
#include "relay/side/side_start.h"
#include "relay/side/side_state.h"
#include "relay/side/unreadable.h"
#include "relay/side/upkeep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define PROBE_MIN_US (20 * MS_US)
#define PROBE_MAX_US (1 * SECOND_US)

/* Of a lease's term: a statement and a renewal that wait for locks, and a second try, are done before the term ends. */
#define LOCK_TIMEOUT_PART 6

static const struct backoff side_backoff = {.base_us = 100 * MS_US, .max_us = 5 * SECOND_US};

/* How long a statement may wait for a lock. Renewals wait for it. */
static int64_t lock_timeout_us(const struct queue *queue)
{
    int64_t most_us = db_lock_timeout_us(queue->process->statement_timeout_us);
    return config_leases(queue->config) ? lesser(most_us, queue->config->lease_us / LOCK_TIMEOUT_PART) : most_us;
}

void side_open(struct queue *queue)
{
    struct db_options options = {
        .conninfo = queue->process->database,
        .application_name = "pgcourier",
        .prepared = queue->process->prepared,
        .statement_timeout_us = queue->process->statement_timeout_us,
        .lock_timeout_us = lock_timeout_us(queue),
        .read_write = true,
        .seed = rng_next(&queue->rng),
    };
    queue->side = memory_new(sizeof *queue->side);
    *queue->side = (struct side){.db = db_new(&options), .probe_interval_us = PROBE_MIN_US};
    snprintf(queue->side->lock_timeout, sizeof queue->side->lock_timeout, "%" PRId64 "ms",
             options.lock_timeout_us / MS_US);
    queue->side_status.lock_timeout = queue->side->lock_timeout;
    queue->side_status.db = queue->side->db;
    upkeep_open(queue);
}

void side_close(struct queue *queue)
{
    struct side *side = queue->side;
    if (!side)
        return;
    if (side->round.job)
        settle_abort(side->round.job);
    if (side->round.arena)
        round_done(&side->round);
    db_free(side->db);
    free(side);
    upkeep_close(queue);
    rest_question_close(queue);
}

static void take_probe_request(struct queue *queue, instant_us now)
{
    struct side *side = queue->side;
    if (!queue->side_requests.new_probe)
        return;
    queue->side_requests.new_probe = false;
    side->probe_is_old = side->state == SIDE_PROBING;
    side->probe_at = instant_min(side->probe_at, now);
}

/* Requests and findings of claims since the last turn. */
static void hear_claims(struct queue *queue, instant_us now)
{
    take_probe_request(queue, now);
    upkeep_hear(queue);
}

/* A job without statements is committed at once. */
static struct settle_job *worth_sending(struct queue *queue, struct settle_job *job, instant_us now)
{
    if (!job || !settle_is_empty(job))
        return job;
    settle_commit(queue, job, now);
    return NULL;
}

/* Finished lanes of orphans, and of claims that cannot settle them before their end; and leased lanes, unless some
 * lease may not be ours any more. */
static struct settle_job *urgent_job(struct queue *queue, instant_us now)
{
    struct settle_job *job = worth_sending(queue, settle_collect(queue, queue->holds.orphans, false), now);
    for (size_t i = 0; !job && i < queue->claim_count; i++)
        if (queue->claiming.offered[i])
            job = worth_sending(queue, settle_collect(queue, *queue->holds.claimed[i], true), now);
    if (!job && !queue->leases.maybe_lost)
        job = worth_sending(queue, settle_collect(queue, queue->holds.leased, true), now);
    return job;
}

/* The settlement or the probe that claims and acked events wait for. False: neither is due. */
static bool start_urgent(struct queue *queue, instant_us now)
{
    struct side *side = queue->side;
    if (now < side->retry_at)
        return false;
    /* Claims may wait for the probe, and what the table refuses for claims: see relay/settle/refusal.h. */
    bool probe = now >= side->probe_at && queue->pause.known; /* claims wait for the first look, too */
    struct settle_job *job = probe && side->settle_failed ? NULL : urgent_job(queue, now);
    orphan_free(queue);
    settle_free_batches(&queue->holds.leased);
    if (job)
        side_start_settlement(queue, job, now);
    else if (probe)
        side_start_probe(queue, now);
    return side->state != SIDE_IDLE;
}

/* Leases come first, as they run out. Upkeep tasks that wait for nothing else may take long, all of them: what is due
 * goes between two. */
static void start(struct queue *queue, instant_us now)
{
    struct side *side = queue->side;
    if (side->state != SIDE_IDLE || !db_is_idle(side->db))
        return;
    if (queue->rest.state == REST_RESTING) {
        if (upkeep_next_at_rest(queue, now))
            side_start_upkeep(queue, now);
        else if (queue->side_requests.rest != REST_ASKS_NOTHING)
            side_start_rest_question(queue);
        return;
    }
    if (lease_is_due(queue, now)) {
        side_start_renewal(queue, now);
        return;
    }
    if (side_start_search(queue, now))
        return;
    bool ran_upkeep = side->ran_upkeep;
    side->ran_upkeep = false;
    if (ran_upkeep && start_urgent(queue, now))
        return;
    side->ran_upkeep = upkeep_next(queue, true, now);
    if (side->ran_upkeep) {
        side_start_upkeep(queue, now);
        return;
    }
    if ((!ran_upkeep && start_urgent(queue, now)) || now < side->retry_at)
        return;
    if (queue->side_requests.peek)
        side_start_peek(queue);
    else if (upkeep_next(queue, false, now))
        side_start_upkeep(queue, now);
    else if (queue->side_requests.check_empty)
        side_start_check(queue);
    else if (queue->side_requests.rest != REST_ASKS_NOTHING)
        side_start_rest_question(queue);
}

static void take_result(struct queue *queue, const struct db_result *result, instant_us now)
{
    struct side *side = queue->side;
    if (!round_take(&side->round, result->index, result->res) || side->round.failed || result->index < side->first)
        return;
    struct settle_job *job = side->round.job;
    size_t first = side->round.settle_at;
    if (side->state == SIDE_SETTLING && result->index >= first)
        queue->ordering->type->settled(queue->ordering, &job->settlement, result->index - first, result->res,
                                       &job->missing);
    else if (side->state == SIDE_PROBING)
        queue->ordering->type->probed(queue->ordering, result->index - side->first, result->res);
    else if (side->state == SIDE_CHECKING)
        queue->side_requests.found_empty = PQntuples(result->res) == 0 && !queue->side_requests.answer_outdated;
    else if (side->state == SIDE_PEEKING)
        pace_peeked(queue, PQntuples(result->res) > 0, now);
    else if (side->state == SIDE_RENEWING)
        lease_take(queue, result->res, now);
    else if (side->state == SIDE_RESTING)
        rest_question_take(queue, result->res);
    else if (side->state == SIDE_SEARCHING)
        unreadable_take(queue, result->res);
    else if (side->state == SIDE_UPKEEP)
        upkeep_take(queue, result->res, now);
}

static void mend_connection(struct queue *queue)
{
    struct side *side = queue->side;
    enum db_remedy remedy = side->round.rule->remedy;
    if (remedy == DB_RECONNECT || remedy == DB_UNPREPARED)
        db_drop(side->db, remedy == DB_UNPREPARED, side->round.error.text);
}

/* As docs/operations.md has them. */
static const char *const tasks[] = {[SIDE_PROBING] = "probe",
                                    [SIDE_CHECKING] = "empty",
                                    [SIDE_PEEKING] = "peek",
                                    [SIDE_RENEWING] = "renewal",
                                    [SIDE_RESTING] = "rest"};

static void round_failed(struct queue *queue, instant_us now)
{
    struct side *side = queue->side;
    side->settle_failed |= side->round.job != NULL;
    rest_question_end(queue, true);
    if (side->state == SIDE_UPKEEP) {
        upkeep_end(queue, &side->round.error, now);
        mend_connection(queue);
        return;
    }
    if (side->state == SIDE_SEARCHING) {
        unreadable_end(queue, &side->round.error, now);
        return;
    }
    if (side->state == SIDE_RESTING) { /* the queue stays awake */
        if (side->round.refusal != REFUSAL_BY_TIME)
            report_side_failed(queue, tasks[side->state], &side->round.error);
        mend_connection(queue);
        return;
    }
    if (side->state == SIDE_PEEKING && side->round.refusal == REFUSAL_OF_ROW) {
        pace_peeked(queue, true, now); /* there is a row at least, and whether it can be read a claim finds out */
        mend_connection(queue);
        return;
    }
    if (side->state == SIDE_RENEWING)
        lease_renewed(queue, true, now);
    if (round_met_lost_lease(&side->round)) {
        settle_abort(side->round.job);
        lease_maybe_lost(queue, now);
        return;
    }
    if (round_was_refused(&side->round) && !unreadable_settle_failed(queue, &side->round, now)) {
        bool again = refusal_answer(queue, &side->round, now);
        if (!again || side->round.refusal == REFUSAL_BY_TIME)
            report_settle_failed(queue, &side->round.error);
        if (again)
            return;
    } else if (side->round.job) {
        settle_abort(side->round.job);
        report_settle_failed(queue, &side->round.error);
    } else {
        report_side_failed(queue, tasks[side->state], &side->round.error);
    }
    side->failures++;
    side->retry_at = now + backoff_delay_us(&side_backoff, side->failures, &queue->rng);
    mend_connection(queue);
}

static void round_succeeded(struct queue *queue, instant_us now)
{
    struct side *side = queue->side;
    side->failures = 0;
    FAULT_POINT("side.done");
    rest_question_end(queue, false);
    if (side->round.job) {
        if (holding_of_queue(queue)->claims_by_room)
            pace_poll_at(&queue->pace, now + 1); /* for the next turn: there is room, and maybe a next event */
        refusal_commit(queue, side->round.job, now);
        orphan_free(queue);
        settle_free_batches(&queue->holds.leased);
    }
    if (side->state == SIDE_RENEWING)
        lease_renewed(queue, false, now);
    if (side->state == SIDE_SEARCHING)
        unreadable_end(queue, NULL, now);
    if (side->state == SIDE_UPKEEP)
        upkeep_end(queue, NULL, now);
    if (side->state == SIDE_PROBING && side->probe_is_old) {
        side->probe_at = now;
    } else if (side->state == SIDE_PROBING) {
        if (!queue->side_requests.probe_answered) {
            pace_poll_at(&queue->pace, now);
            queue->side_requests.probe_answered_at = now;
            queue->side_requests.check_empty = false; /* asked for before claims could look */
        }
        queue->side_requests.probe_answered = true;
        bool often = queue->ordering->type->wants_probe(queue->ordering) && queue->pace.work_known;
        side->probe_interval_us = often ? PROBE_MIN_US : side->probe_interval_us * 2;
        if (side->probe_interval_us > PROBE_MAX_US)
            side->probe_interval_us = PROBE_MAX_US;
        side->probe_at = now + side->probe_interval_us;
    }
}

static void connection_lost(struct queue *queue, const struct error *err, instant_us now)
{
    FAULT_POINT("side.lost");
    struct side *side = queue->side;
    if (side->state != SIDE_OFF)
        report_disconnected(queue, "side", err);
    else
        report_unreachable(queue, "side", err, &queue->trouble);
    if (side->round.job)
        settle_abort(side->round.job);
    if (side->round.arena)
        round_done(&side->round);
    side->state = SIDE_OFF;
    unreadable_abort(queue);
    rest_question_end(queue, true);
    queue->side_status.connected = false;
    lease_backend_lost(queue, now);
}

static void connection_up(struct queue *queue, instant_us now)
{
    report_connected(queue, "side");
    queue->trouble = 0;
    queue->side->state = SIDE_IDLE;
    queue->ordering->type->forget(queue->ordering);
    queue->side_status.connected = true;
    side_requests_probe(&queue->side_requests);
    take_probe_request(queue, now);
    upkeep_connected(queue, now);
    lease_backend_up(queue, now);
}

static void take_events(struct queue *queue, const struct pollset *ps, instant_us now)
{
    struct side *side = queue->side;
    struct db_result result;
    struct error err;
    for (;;) {
        switch (db_progress(side->db, ps, now, &result, &err)) {
        case DB_NOTHING:
            return;
        case DB_UP:
            connection_up(queue, now);
            break;
        case DB_RESULT:
            take_result(queue, &result, now);
            PQclear(result.res);
            break;
        case DB_ROUND_END:
            if (side->round.failed)
                round_failed(queue, now);
            else
                round_succeeded(queue, now);
            round_done(&side->round);
            side->state = SIDE_IDLE;
            break;
        case DB_DOWN:
            connection_lost(queue, &err, now);
            return;
        }
    }
}

void side_hear(struct queue *queue, const struct pollset *ps, instant_us now)
{
    hear_claims(queue, now);
    if (holding_of_queue(queue)->belongs_to_side_connection)
        take_events(queue, ps, now);
}

void side_ready(struct queue *queue, const struct pollset *ps, instant_us now)
{
    hear_claims(queue, now);
    bool heard = holding_of_queue(queue)->belongs_to_side_connection;
    take_events(queue, heard ? NULL : ps, now); /* ps: once a turn */
    start(queue, now);
    queue->side_status.settling = queue->side->round.job != NULL;
}

/* An instant that has passed ends no wait: that one waits for something else than time. */
static instant_us later(instant_us at, instant_us now)
{
    return at > now ? at : INSTANT_NEVER;
}

void side_prepare(struct queue *queue, struct pollset *ps, instant_us now)
{
    struct side *side = queue->side;
    db_prepare(side->db, ps);
    pollset_deadline(ps, later(lease_over_at(queue), now));
    if (side->state != SIDE_IDLE)
        return;
    if (queue->rest.state == REST_RESTING) {
        pollset_deadline(ps, later(upkeep_serving_at(queue), now));
        return;
    }
    pollset_deadline(ps, later(upkeep_due_at(queue), now));
    pollset_deadline(ps, unreadable_due_at(queue));
    pollset_deadline(ps, later(lease_due_at(queue), now));
    pollset_deadline(ps, side->retry_at > now ? side->retry_at : later(side->probe_at, now));
}
