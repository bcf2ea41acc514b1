#include "relay/settle/blame.h"

#include "relay/base/utf8.h"
#include "relay/queue/queue.h"
#include "relay/settle/settle.h"

#define TEST_CLAIM_US (30 * SECOND_US) /* from one test claim to the next */

/* How long a table that has accepted other rows is not suspected of refusing all: enough for a key that was given back
 * to be claimed, delivered and refused again. */
#define BLAME_US (30 * SECOND_US)

#define CAUSE_MAX 300 /* bytes of what the database said */

void blame_note_refusal(struct queue *queue, struct batch *batch, instant_us now)
{
    if (batch->halving.most == 0)
        batch->refused_at = now;
    if (queue->refusal.all_refused_since == 0)
        queue->refusal.all_refused_since = now;
}

static void blame_row(struct queue *queue, struct item *item, const struct error *cause)
{
    queue->refusal.blamed = true;
    queue->refusal.blamed_id = item->event.id;
    struct error *why = arena_alloc(item->lane->batch->arena, sizeof *why);
    error_set(why, ERROR_REFUSED, "its row cannot be taken out of %s: mend what refuses it, or delete it by hand: %.*s",
              queue->config->table, (int)utf8_fit(span_of(cause->text), CAUSE_MAX), cause->text);
    item->delivery.cause = why;
    if (!item->lane->refused)
        item->lane->refused = item;
}

/* The event of the one row that was to be settled; NULL: that row is only an entry in parked. */
static struct item *item_of_row(const struct lane *lane)
{
    return lane->acked > 0 ? lane->first : lane->failed;
}

/* The lane goes on without the one row of it that was to be settled. */
static void leave_out(struct queue *queue, struct lane *lane, const struct error *cause, instant_us now)
{
    struct item *item = item_of_row(lane);
    if (lane->acked > 0) {
        lane->first = item->next;
        lane->acked--;
    } else if (lane->outcome != LANE_DEAD) {
        /* Not even the key's wait can be written down. This relay leaves the key out; other relays do not know. */
        lane->outcome = LANE_RELEASED;
        lane->release_us = queue->config->retry_max_us;
        lane->refused = NULL;
        if (lane->batch->hold == HOLD_LEASE)
            lane_hold(lane, HOLD_LOST); /* nor can the lease be given back: its term will run out */
        return;
    }
    if (lane->batch->hold == HOLD_LOST) /* without its lock: the next claim finds the refusal */
        queue->ordering->type->released(queue->ordering, item->event.id, item->event.id, now);
    else
        blame_row(queue, item, cause);
}

/* The last event that was blamed. Its row in outbox.parked may say that it has no failures, because somebody has opened
 * its key. */
static bool was_blamed(const struct queue *queue, const struct lane *lane)
{
    const struct item *item = item_of_row(lane);
    return item && queue->refusal.blamed && queue->refusal.blamed_id == item->event.id;
}

/* If a claim has one unsettled lane and no other settlement was refused, its row is blamed at once, so that later
 * claims go on. Not for an internal error of the server: that may be the session's, so a new session is tried first. */
static bool is_to_blame(const struct queue *queue, const struct lane *lane, const struct error *cause, instant_us now)
{
    const struct batch *batch = lane->batch;
    bool known = was_blamed(queue, lane) || (lane->waited && lane->first && lane->first->event.attempt > 1);
    bool first =
        cause->kind != ERROR_INTERNAL && batch->unsettled == 1 && batch->refused_at == queue->refusal.all_refused_since;
    return now < queue->refusal.blame_until || known || first;
}

bool blame_take(struct queue *queue, struct lane *lane, const struct error *cause, instant_us now)
{
    if (!is_to_blame(queue, lane, cause, now))
        return false;
    leave_out(queue, lane, cause, now);
    return true;
}

/* Only a job that was collected since then, and has deleted a delivered event, shows that the table accepts others. */
void blame_note_success(struct queue *queue, const struct settle_job *job, instant_us now)
{
    struct refusal *refusal = &queue->refusal;
    if (refusal->all_refused_since == 0 || job->all_refused_since != refusal->all_refused_since ||
        job->settlement.done_count <= job->missing)
        return;
    refusal->all_refused_since = 0;
    refusal->blame_until = now + BLAME_US;
}

instant_us blame_test_claim_at(const struct queue *queue)
{
    return queue->refusal.all_refused_since > 0 ? queue->refusal.test_claim_at : INSTANT_NEVER;
}

void blame_note_claim(struct queue *queue, instant_us now)
{
    if (queue->refusal.all_refused_since > 0)
        queue->refusal.test_claim_at = now + TEST_CLAIM_US;
}
