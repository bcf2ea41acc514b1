#include "relay/claim/claim_send.h"

#include "relay/base/fault_point.h"
#include "relay/claim/claim_request.h"
#include "relay/claim/claim_state.h"
#include "relay/hold/lease.h"
#include "relay/hold/session_lock.h"
#include "relay/queue/pace.h"
#include "relay/queue/queue.h"
#include "relay/settle/blocked.h"
#include "relay/settle/refusal.h"
#include "relay/settle/settle.h"
#include "sql_text.h"

/* Orphans may still have to be compared with rows that are read from now on, or since the first claim was sent. */
void claim_note_asking(struct queue *queue)
{
    queue->claiming.asking_since = INSTANT_NEVER;
    for (size_t i = 0; i < queue->claim_count; i++) {
        const struct claim *claim = &queue->claims[i];
        if (claim->state == CLAIM_BUSY && claim->round.claim)
            queue->claiming.asking_since = instant_min(queue->claiming.asking_since, claim->sent_at);
    }
}

static bool send_claim(struct claim *claim, int64_t keys, instant_us now, struct error *err)
{
    struct queue *queue = claim->queue;
    const struct claim_request *request = claim_request_make(claim, !claim->round.begin, keys, now);
    struct statement statements[ORDERING_STATEMENTS_MAX];
    size_t n =
        queue->ordering->type->claim(queue->ordering, request, now, claim->round.arena, statements, &claim->plan);
    claim->round.claim = true;
    claim->round.keys = keys;
    claim->arriving = batch_new((size_t)queue->config->max_batch_bytes, queue, claim);
    claim->arriving->response_max = (size_t)queue->config->response_max;
    claim->arriving->keyless = queue->ordering->type->keyless;
    claim->arriving->lane_max = (size_t)claim->plan.key_limit;
    for (size_t i = 0; i < n; i++)
        if (!db_send(claim->db, &statements[i], err))
            return false;
    return true;
}

void claim_begin_halving(struct claim *claim)
{
    bool begun = claim->settling == CLAIM_SETTLES_HALVES;
    for (struct batch *batch = begun ? NULL : claim->batches; batch; batch = batch->next)
        refusal_begin_halving(batch);
    claim->settling = CLAIM_SETTLES_HALVES;
}

/* Behind a savepoint: if the database refuses the settlement, the locks stay. Deferred constraints are checked before
 * the commit. Savepoints of halves must not pile up. */
static bool send_settlement(struct claim *claim, struct settle_job *job, bool commit, struct error *err)
{
    struct round *round = &claim->round;
    round->ahead = sql_settle_savepoint;
    round->lock_timeout = blocked_lock_timeout(claim->queue, claim->db, claim->sent_at);
    job->sent_at = claim->sent_at;
    if (!round_add_settlement(round, claim->db, claim->queue, job, err) ||
        !db_send_sql(claim->db, sql_settle_constraints, err) ||
        (!commit && !db_send_sql(claim->db, sql_settle_release, err)))
        return false;
    round->settle_end += commit ? 1 : 2;
    return true;
}

static bool has_stragglers(const struct claim *claim)
{
    bool may_have = claim_holding(claim)->claims_beside_stragglers;
    for (const struct batch *batch = may_have ? claim->batches : NULL; batch; batch = batch->next)
        if (session_lock_is_needed(batch))
            return true;
    return false;
}

/* A transaction that stays open must not keep the snapshot in which locks were freed at its beginning. The same
 * statement keeps the server from ending an idle transaction. */
static bool send_rest(const struct claim *claim, struct error *err)
{
    const struct round *round = &claim->round;
    bool freed = round->begin && round->unlock_count > 0, nothing = !round->commit && !round->begin && !round->job;
    return (!freed && !nothing) || db_send_sql(claim->db, sql_claim_rest, err);
}

static bool add_holding(struct claim *claim, struct error *err)
{
    const struct holding *holding = claim_holding(claim);
    if (holding->commits_before_delivery)
        return lease_add(claim->queue, claim->batches, &claim->round, claim->db, err);
    return !holding->outlives_transaction ||
           session_lock_add(claim->queue, claim->batches, &claim->round, claim->db, err);
}

/* Settings of a session would be found by others where a pooler shares it: there each transaction that lasts as long as
 * a delivery has its own. */
static bool send_begin(struct claim *claim, struct error *err)
{
    struct round *round = &claim->round;
    round->lasting = db_is_shared(claim->db) && !claim_holding(claim)->outlives_transaction;
    return db_send_sql(claim->db, sql_claim_begin, err) &&
           (!round->lasting || db_send_sql(claim->db, sql_session_transaction, err));
}

void claim_send_round(struct claim *claim, struct settle_job *job, bool commit, int64_t keys, instant_us now)
{
    struct error err;
    struct round *round = &claim->round;
    round_begin(round);
    round->job = job;
    claim->sent_at = now;
    FAULT_POINT("claim.send");
    round->commit = commit;
    round->begin = commit ? keys > 0 || has_stragglers(claim) : !claim->in_transaction;
    bool ok = (!commit || add_holding(claim, &err)) && (!job || send_settlement(claim, job, commit, &err)) &&
              (!commit || db_send_sql(claim->db, "commit", &err)) && (!round->begin || send_begin(claim, &err)) &&
              (!commit || session_lock_add_free(claim->queue, claim->batches, round, claim->db, &err)) &&
              (keys > 0 ? send_claim(claim, keys, now, &err) : send_rest(claim, &err));
    if (job && !commit)
        claim_begin_halving(claim);
    if (keys > 0) {
        claim->queue->metrics.claims++;
        pace_sent(claim->queue, claim->full, now);
    }
    ok = ok && db_end_round(claim->db, &err);
    claim->in_transaction = true;
    claim->state = CLAIM_BUSY;
    claim_note_asking(claim->queue);
    FAULT_POINT("claim.sent");
    if (!ok)
        db_drop(claim->db, false, err.text);
}
