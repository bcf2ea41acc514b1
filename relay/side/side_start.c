#include "relay/side/side_start.h"

#include "relay/base/fault_point.h"
#include "relay/hold/lease.h"
#include "relay/queue/holding.h"
#include "relay/settle/blocked.h"
#include "relay/settle/round.h"
#include "relay/settle/settle.h"
#include "relay/side/rest_question.h"
#include "relay/side/side_state.h"
#include "relay/side/unreadable.h"
#include "relay/side/upkeep.h"

static void send(struct side *side, enum side_state state, bool ok, const struct error *err)
{
    struct error failure;
    side->state = state;
    if (!ok)
        db_drop(side->db, false, err->text);
    else if (!db_end_round(side->db, &failure))
        db_drop(side->db, false, failure.text);
    FAULT_POINT("side.sent");
}

/* Behind a pooler the session has none of our settings. Statements that nothing waits for run with
 * the role's. A settlement sets its lock_timeout itself. */
static bool begin(struct queue *queue, struct error *err)
{
    struct side *side = queue->side;
    round_begin(&side->round);
    side->first = db_is_shared(side->db) && holding_of_queue(queue)->belongs_to_side_connection;
    if (side->first == 0)
        return true;
    struct statement st = round_timeouts(queue, side->lock_timeout, side->round.arena);
    side->round.settle_end = side->first;
    return db_send(side->db, &st, err);
}

/* For a statement that looks at rows. */
static bool begin_guarded(struct queue *queue, struct error *err)
{
    struct side *side = queue->side;
    if (!begin(queue, err))
        return false;
    if (!queue_is_guarded(queue))
        return true;
    struct statement st = ordering_guard(queue->unreadable.ids, queue->unreadable.count, side->round.arena);
    side->round.settle_end = ++side->first;
    return db_send(side->db, &st, err);
}

void side_start_settlement(struct queue *queue, struct settle_job *job, instant_us now)
{
    struct side *side = queue->side;
    struct error err;
    round_begin(&side->round);
    side->first = 0;
    FAULT_POINT("side.settle");
    side->round.lock_timeout = blocked_lock_timeout(queue, side->db, now);
    job->sent_at = now;
    bool ok = round_add_settlement(&side->round, side->db, queue, job, &err);
    side->round.settle_end++; /* the commit is part of it */
    /* One statement is a transaction by itself; several are one by the round they travel in, which is an implicit
     * transaction. */
    send(side, SIDE_SETTLING, ok, &err);
}

void side_start_probe(struct queue *queue, instant_us now)
{
    struct side *side = queue->side;
    struct error err;
    bool ok = begin(queue, &err);
    struct statement statements[ORDERING_STATEMENTS_MAX];
    size_t n = queue->ordering->type->probe(queue->ordering, now, side->round.arena, statements);
    for (size_t i = 0; ok && i < n; i++)
        ok = db_send(side->db, &statements[i], &err);
    side->probe_at = now + side->probe_interval_us;
    side->probe_is_old = side->settle_failed = false;
    send(side, SIDE_PROBING, ok, &err);
}

static struct statement empty_question(const struct queue *queue, struct arena *arena)
{
    struct statement st = statement_of(guarded_text_of(&queue->sql.empty, queue_is_guarded(queue)));
    statement_add_text(&st, queue->config->name);
    struct id_ranges ids;
    queue->ordering->type->inhabited(queue->ordering, &ids);
    int64_t lo[ID_RANGES_MAX], hi[ID_RANGES_MAX];
    for (size_t i = 0; i < ids.count; i++) {
        lo[i] = ids.at[i].lo;
        hi[i] = ids.at[i].hi;
    }
    statement_add_ids(&st, arena, lo, ids.count);
    statement_add_ids(&st, arena, hi, ids.count);
    return st;
}

void side_start_check(struct queue *queue)
{
    struct side *side = queue->side;
    struct error err;
    bool ok = begin_guarded(queue, &err);
    struct statement st = empty_question(queue, side->round.arena);
    ok = ok && db_send(side->db, &st, &err);
    queue->side_requests.check_empty = queue->side_requests.answer_outdated = false;
    send(side, SIDE_CHECKING, ok, &err);
}

void side_start_peek(struct queue *queue)
{
    struct side *side = queue->side;
    struct error err;
    bool ok = begin_guarded(queue, &err);
    struct statement st;
    queue->ordering->type->peek(queue->ordering, queue_is_guarded(queue), side->round.arena, &st);
    ok = ok && db_send(side->db, &st, &err);
    queue->side_requests.peek = false;
    send(side, SIDE_PEEKING, ok, &err);
}

void side_start_upkeep(struct queue *queue, instant_us now)
{
    struct side *side = queue->side;
    struct error err;
    bool ok = upkeep_reads_rows(queue) ? begin_guarded(queue, &err) : begin(queue, &err);
    struct statement st = upkeep_begin(queue, side->round.arena, now);
    ok = ok && db_send(side->db, &st, &err);
    send(side, SIDE_UPKEEP, ok, &err);
}

bool side_start_search(struct queue *queue, instant_us now)
{
    struct side *side = queue->side;
    struct error err;
    side->searched = !side->searched && now >= unreadable_due_at(queue);
    if (!side->searched)
        return false;
    bool ok = begin(queue, &err);
    struct statement st = unreadable_begin(queue, side->round.arena, now);
    ok = ok && db_send(side->db, &st, &err);
    send(side, SIDE_SEARCHING, ok, &err);
    return true;
}

void side_start_renewal(struct queue *queue, instant_us now)
{
    struct side *side = queue->side;
    struct error err;
    bool ok = begin(queue, &err);
    FAULT_POINT("side.renew");
    struct statement st = lease_renewal(queue, side->round.arena, now);
    ok = ok && db_send(side->db, &st, &err);
    send(side, SIDE_RENEWING, ok, &err);
}

void side_start_rest_question(struct queue *queue)
{
    struct side *side = queue->side;
    struct error err;
    struct statement st;
    bool ok = begin(queue, &err);
    if (ok && rest_question_timeout(queue, side->round.arena, &st)) {
        ok = db_send(side->db, &st, &err);
        side->round.settle_end = ++side->first;
    }
    st = rest_question_begin(queue, side->round.arena);
    ok = ok && db_send(side->db, &st, &err);
    send(side, SIDE_RESTING, ok, &err);
}
