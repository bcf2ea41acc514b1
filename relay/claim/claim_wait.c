#include "relay/claim/claim_wait.h"

#include "relay/base/lesser.h"
#include "relay/claim/ahead.h"
#include "relay/claim/claim_request.h"
#include "relay/claim/claim_state.h"
#include "relay/deliver/outlet.h"
#include "relay/hold/lease.h"
#include "relay/queue/holding.h"
#include "relay/queue/queue.h"
#include "relay/route/destination.h"
#include "relay/settle/blame.h"
#include "relay/settle/blocked.h"
#include "relay/side/unreadable.h"

#define WASTED_BURST_US (50 * MS_US)
#define ROOM_PART 4
#define LOOK_US (100 * MS_US) /* a claim that takes longer does not hold up the others */
#define ROOM_WAIT_US (5 * MS_US)

const char *claim_waits_for(enum claim_reason reason)
{
    static const char *const words[CLAIM_REASONS] = {
        [CLAIM_WAITS_FOR_NOTHING] = "nothing",
        [CLAIM_WAITS_FOR_END] = "end of the relay",
        [CLAIM_WAITS_FOR_RELAY] = "relay with another lock_class",
        [CLAIM_WAITS_FOR_RESUME] = "resume",
        [CLAIM_WAITS_FOR_WINDOW] = "window",
        [CLAIM_WAITS_FOR_PROBE] = "first probe",
        [CLAIM_WAITS_FOR_RETRY] = "retry",
        [CLAIM_WAITS_FOR_PACE] = "more events at once",
        [CLAIM_WAITS_FOR_DESTINATION] = "destination that is down",
        [CLAIM_WAITS_FOR_SETTLEMENT] = "settlement of lost claims",
        [CLAIM_WAITS_FOR_SEARCH] = "search for an unreadable row",
        [CLAIM_WAITS_FOR_TURN] = "another claim",
        [CLAIM_WAITS_FOR_EVENTS] = "new events",
        [CLAIM_WAITS_FOR_SINK] = "sink that is down",
        [CLAIM_WAITS_FOR_ROOM] = "room in the sink",
    };
    return words[reason];
}

/* ---- until when ---- */

/* Settlements that failed or whose claim was lost come first: without them, claiming would pile up deliveries that
 * nobody writes down. A few rows that somebody else holds are no reason to wait. */
static bool orphans_wait(const struct queue *queue)
{
    size_t blocked = 0;
    for (const struct batch *batch = queue->holds.orphans; batch; batch = batch->next) {
        if (batch->finished > 0)
            return true;
        blocked += batch->blocked;
    }
    return blocked_is_full(queue, blocked);
}

static bool is_claiming_now(const struct claim *claim)
{
    return claim->state == CLAIM_BUSY && claim->round.claim;
}

static bool is_claiming(const struct queue *queue)
{
    for (size_t i = 0; i < queue->claim_count; i++)
        if (is_claiming_now(&queue->claims[i]))
            return true;
    return false;
}

/* A second claim passes over the rows that the first one is reading: for a slow sink it would take younger events
 * before older ones. */
static instant_us turn_at(const struct queue *queue)
{
    instant_us at = 0;
    if (!ahead_takes_turns(queue))
        return at;
    for (size_t i = 0; i < queue->claim_count; i++)
        if (is_claiming_now(&queue->claims[i]) && queue->claims[i].sent_at + LOOK_US > at)
            at = queue->claims[i].sent_at + LOOK_US;
    return at;
}

/* When there is a reason to claim. */
static instant_us events_at(const struct claim *claim, instant_us now)
{
    const struct queue *queue = claim->queue;
    const struct ordering *ordering = queue->ordering;
    if (now >= queue->pace.poll_at || ordering->type->pending(ordering, now) || claim_has_followed(claim))
        return 0;
    return instant_min(queue->pace.poll_at, ordering->type->pending_at(ordering));
}

static instant_us never_while(bool waits)
{
    return waits ? INSTANT_NEVER : 0;
}

/* The claim does not go before, for this reason. */
static instant_us not_before(const struct claim *claim, enum claim_reason reason, instant_us now)
{
    const struct queue *queue = claim->queue;
    switch (reason) {
    case CLAIM_WAITS_FOR_END:
        return never_while(queue->stopping);
    case CLAIM_WAITS_FOR_RELAY:
        return never_while(queue->pause.refused);
    case CLAIM_WAITS_FOR_RESUME:
        return never_while(queue->pause.on);
    case CLAIM_WAITS_FOR_WINDOW:
        return never_while(queue->window.closed);
    case CLAIM_WAITS_FOR_PROBE:
        return never_while(!queue->side_requests.probe_answered);
    case CLAIM_WAITS_FOR_RETRY:
        return claim->retry_at;
    case CLAIM_WAITS_FOR_PACE:
        return queue->pace.earliest_at;
    case CLAIM_WAITS_FOR_DESTINATION:
        /* Keys of a destination that is down are claimed and given back, to reach the keys behind them: at a rate. */
        return queue->wasted_until - WASTED_BURST_US;
    case CLAIM_WAITS_FOR_SETTLEMENT:
        return orphans_wait(queue) ? blame_test_claim_at(queue) : 0;
    case CLAIM_WAITS_FOR_SEARCH:
        return unreadable_claims_at(queue);
    case CLAIM_WAITS_FOR_TURN:
        return turn_at(queue);
    case CLAIM_WAITS_FOR_EVENTS:
        return events_at(claim, now);
    case CLAIM_WAITS_FOR_NOTHING:
    case CLAIM_WAITS_FOR_SINK: /* these two are known with the number of keys */
    case CLAIM_WAITS_FOR_ROOM:
    case CLAIM_REASONS:
        break;
    }
    return 0;
}

/* ---- how many keys ---- */

static struct claim_wait waits_for(enum claim_reason reason, instant_us until)
{
    return (struct claim_wait){.until = until, .reason = reason};
}

static struct claim_wait may_ask_for(int64_t keys)
{
    return keys > 0 ? (struct claim_wait){.keys = keys} : waits_for(CLAIM_WAITS_FOR_ROOM, INSTANT_NEVER);
}

static int64_t lanes_open(const struct queue *queue)
{
    int64_t open = 0;
    for (size_t i = 0; i < queue->claim_count; i++)
        for (const struct batch *batch = queue->claims[i].batches; batch; batch = batch->next)
            open += (int64_t)batch->open;
    return open;
}

/* Events that wait for nobody are claimed as there is room for them: others may have the rest, and what comes meanwhile
 * may be more urgent. A little room is waited for to become more. */
static struct claim_wait as_room_allows(const struct claim *claim, int64_t wanted, instant_us now)
{
    const struct queue *queue = claim->queue;
    if (!queue->ordering->type->keyless)
        return may_ask_for(lesser(wanted, ahead_room(queue, lanes_open(queue))));
    int64_t room = outlet_room(queue->outlet, ahead_places(queue));
    for (size_t i = 0; i < queue->claim_count; i++)
        room -= is_claiming_now(&queue->claims[i]) ? queue->claims[i].round.keys : 0;
    for (const struct batch *batch = queue->arrived; batch; batch = batch->arrived_next)
        room -= (int64_t)batch->event_count; /* about to be offered to the sink */
    bool little = room < wanted && room < outlet_most_in_flight(queue->outlet) / ROOM_PART;
    if (room > 0 && little && now < claim->sent_at + ROOM_WAIT_US)
        return waits_for(CLAIM_WAITS_FOR_ROOM, claim->sent_at + ROOM_WAIT_US);
    return may_ask_for(lesser(room, wanted));
}

static struct claim_wait as_sink_allows(const struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    int64_t limit = orphans_wait(queue) ? 1 : claim_keys_at_most(queue); /* one: to find out */
    int64_t wanted = outlet_keys_wanted(queue->outlet, route_static(queue->route), now);
    bool claiming = is_claiming(queue);
    if (wanted == 0)
        return waits_for(CLAIM_WAITS_FOR_SINK, outlet_wake_at(queue->outlet));
    /* Of several keys for one trial delivery all but one would wait, in transactions that stay open. */
    if (wanted == 1 && (queue->arrived || claiming))
        return waits_for(CLAIM_WAITS_FOR_SINK, INSTANT_NEVER);
    /* An event with a lease and no place in its sink would only wait here instead of at another relay. */
    bool by_room = holding_of_queue(queue)->claims_by_room;
    if (by_room && claiming)
        return waits_for(CLAIM_WAITS_FOR_TURN, INSTANT_NEVER);
    if (by_room)
        limit = lesser(limit, lease_room(queue));
    return as_room_allows(claim, lesser(wanted, limit), now);
}

struct claim_wait claim_wait(struct claim *claim, instant_us now)
{
    struct claim_wait wait = {0};
    for (int i = CLAIM_WAITS_FOR_NOTHING + 1; i < CLAIM_REASONS && wait.until != INSTANT_NEVER; i++) {
        instant_us at = not_before(claim, (enum claim_reason)i, now);
        if (at > wait.until)
            wait = waits_for((enum claim_reason)i, at);
    }
    return wait.until > now ? wait : as_sink_allows(claim, now);
}
