#include "relay/relay_end.h"

#include "relay/claim/claim_state.h"
#include "relay/deliver/outlet.h"
#include "relay/queue/queue.h"

#define CHECK_MIN_US (4 * MS_US)
#define CHECK_MAX_US (64 * MS_US)
#define LOOKS_US (1 * SECOND_US) /* without a claim for so long it is asked all the same: a circuit may be open */

static bool queue_is_quiet(const struct queue *queue)
{
    if (!holds_are_empty(&queue->holds) || queue->arrived || queue->side_status.settling)
        return false;
    for (size_t i = 0; i < queue->claim_count; i++) {
        const struct claim *claim = &queue->claims[i];
        if (claim->state == CLAIM_BUSY || claim->in_transaction)
            return false;
    }
    return true;
}

/* Whether there is something for us: it has looked for a pause, its window and how far ids go, and could look again. */
static bool knows(const struct queue *queue)
{
    return queue->side_status.connected && queue->side_requests.probe_answered && queue->window.known;
}

static bool queue_is_idle(const struct queue *queue)
{
    const struct outlet *outlet = queue->outlet;
    if (!knows(queue) || !holds_are_empty(&queue->holds) || queue->arrived || outlet->circuit.state != CIRCUIT_CLOSED ||
        outlet->routes.first)
        return false;
    for (size_t i = 0; i < queue->claim_count; i++) {
        const struct claim *claim = &queue->claims[i];
        if (claim->state == CLAIM_OFF || claim->failures > 0)
            return false;
    }
    return true;
}

void relay_end_begin(struct ending *ending, instant_us now)
{
    ending->busy_at = ending->check_at = now;
    ending->check_interval_us = CHECK_MIN_US;
}

bool relay_end_is_quiet(const struct ending *ending)
{
    for (size_t i = 0; i < ending->queue_count; i++)
        if (!queue_is_quiet(ending->queues[i]))
            return false;
    return true;
}

instant_us relay_end_check_at(const struct ending *ending)
{
    return ending->until_empty && relay_end_is_quiet(ending) ? ending->check_at : INSTANT_NEVER;
}

/* A paused queue has nothing for this relay, and neither has one outside of its window. Events that another relay
 * keeps from this one are not nothing. */
static bool has_nothing(const struct queue *queue)
{
    return queue->side_requests.found_empty || (queue->pause.on && !queue->pause.refused) ||
           (queue->window.closed && queue->window.known);
}

static bool all_have_nothing(const struct ending *ending)
{
    for (size_t i = 0; i < ending->queue_count; i++)
        if (!has_nothing(ending->queues[i]))
            return false;
    return true;
}

static void forget_answers(struct ending *ending)
{
    for (size_t i = 0; i < ending->queue_count; i++) {
        ending->queues[i]->side_requests.found_empty = false;
        ending->queues[i]->side_requests.answer_outdated = true;
    }
    ending->check_interval_us = CHECK_MIN_US;
}

/* Claims still come to what there is, or what is dead, or have only begun to: the same is not to be walked over beside
 * them. */
static bool looks_on(const struct queue *queue, instant_us now)
{
    instant_us looked_at = queue->side_requests.probe_answered_at;
    for (size_t i = 0; i < queue->claim_count; i++)
        if (queue->claims[i].sent_at > looked_at)
            looked_at = queue->claims[i].sent_at;
    return now - looked_at < LOOKS_US && queue->ordering->type->pending(queue->ordering, now);
}

bool relay_end_empty(struct ending *ending, instant_us now)
{
    if (!ending->until_empty)
        return false;
    if (!relay_end_is_quiet(ending)) {
        forget_answers(ending);
        return false;
    }
    if (all_have_nothing(ending))
        return true;
    if (now < ending->check_at)
        return false;
    for (size_t i = 0; i < ending->queue_count; i++)
        ending->queues[i]->side_requests.check_empty |= !looks_on(ending->queues[i], now);
    ending->check_at = now + ending->check_interval_us;
    if (ending->check_interval_us < CHECK_MAX_US)
        ending->check_interval_us *= 2;
    return false;
}

bool relay_end_idle(struct ending *ending, instant_us now, int64_t *ret_us)
{
    for (size_t i = 0; i < ending->queue_count; i++)
        if (!queue_is_idle(ending->queues[i]))
            ending->busy_at = now;
    if (ending->idle_max_us == 0 || now - ending->busy_at < ending->idle_max_us)
        return false;
    *ret_us = now - ending->busy_at;
    return true;
}
