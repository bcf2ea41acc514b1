#include "relay/claim/claim_request.h"

#include "ordering/array_text.h"
#include "ordering/ordering.h"
#include "relay/base/lesser.h"
#include "relay/claim/ahead.h"
#include "relay/claim/claim_state.h"
#include "relay/deliver/outlet.h"
#include "relay/hold/lease.h"
#include "relay/queue/holding.h"
#include "relay/queue/key_book.h"
#include "relay/settle/settle.h"
#include "relay/table/table.h"

#include <assert.h>

#define EVENTS_PER_CLAIM 16384 /* to be divided among the keys */
#define EVENTS_PER_KEY_MIN 16
#define EVENTS_ONE_BY_ONE 64

struct request {
    struct claim_request claim;
    struct span *keys, *follow;
    int64_t *keyless_ids;
};

/* Where a key brings an event or two and is quickly done with, most of what it costs are its claim's statements and
 * commit: there a claim takes all the locks that its connection may come to hold beside stragglers. */
int64_t claim_keys_at_most(const struct queue *queue)
{
    bool limited = queue->claiming.key_limit < queue->config->keys_per_claim;
    return queue->claiming.lean && !limited ? queue->claiming.key_limit * CLAIM_LOCKS_FACTOR
                                            : queue->claiming.key_limit;
}

/* Lanes in a state up to `last`. */
static void add_busy_batches(struct request *request, const struct batch *batches, enum lane_state last)
{
    struct claim_request *claim = &request->claim;
    for (const struct batch *batch = batches; batch; batch = batch->next)
        for (const struct lane *lane = batch->lanes; lane; lane = lane->next)
            if (lane->state <= last && lane->key.data)
                request->keys[claim->busy_key_count++] = lane->key;
            else if (lane->state <= last && (lane->last || lane->delayed || lane->hold == HOLD_SESSION))
                request->keyless_ids[claim->busy_keyless_count++] = lane_keyless_id(lane);
}

/* A leased key's entry keeps claims away. But a term may be over, and its lane still under way. */
static bool is_left_out_of_claims(const struct lane *lane, bool sure)
{
    return lane->state != LANE_SETTLED && (!sure || lane->hold == HOLD_LOST);
}

static void add_busy_leases(struct request *request, const struct queue *queue, instant_us now)
{
    struct claim_request *claim = &request->claim;
    for (const struct batch *batch = queue->holds.leased; batch; batch = batch->next) {
        bool sure = lease_is_sure(queue, batch, now);
        for (const struct lane *lane = batch->lanes; lane; lane = lane->next)
            if (!is_left_out_of_claims(lane, sure))
                continue;
            else if (lane->key.data)
                request->keys[claim->busy_key_count++] = lane->key;
            else
                request->keyless_ids[claim->busy_keyless_count++] = lane_keyless_id(lane);
    }
}

/* In a state up to `last`. */
static struct lane *find_lane_up_to(const struct batch *batches, struct span key, uint64_t hash, enum lane_state last)
{
    struct lane *lane = NULL;
    for (const struct batch *batch = batches; batch && !lane; batch = batch->next)
        lane = batch_find(batch, key, hash, last);
    return lane;
}

/* The lane of the key that is not settled; NULL: there is none. */
static struct lane *find_lane(const struct batch *batches, struct span key, uint64_t hash)
{
    return find_lane_up_to(batches, key, hash, LANE_SETTLING);
}

static bool is_leased(const struct queue *queue, struct span key, uint64_t hash, instant_us now)
{
    for (const struct batch *batch = queue->holds.leased; batch; batch = batch->next) {
        const struct lane *lane = batch_find(batch, key, hash, LANE_SETTLING);
        if (lane && is_left_out_of_claims(lane, lease_is_sure(queue, batch, now)))
            return true;
    }
    return false;
}

/* The key is among the request's busy keys, other than by lanes of the claim itself. */
static bool is_busy(const struct queue *queue, struct span key, uint64_t hash, instant_us now)
{
    return keyset_find(&queue->keys.destination_down, key, hash) || find_lane(queue->holds.orphans, key, hash) ||
           is_leased(queue, key, hash, now);
}

/* Moves followed keys into the request: those that are free, and those that this claim itself holds. */
static void add_followed(struct request *request, struct claim *claim, enum lane_state busy, size_t max, instant_us now)
{
    struct keyset *follow = &claim->queue->keys.more;
    for (size_t i = follow->count; i-- > 0 && request->claim.follow_key_count < max;) {
        struct keyset_entry *entry = &follow->entries[i];
        if (entry->owner != claim && (entry->owner || claim->full))
            continue;
        struct lane *lane = find_lane_up_to(claim->batches, entry->key, entry->hash, busy);
        if (lane)
            lane->more = true; /* followed again when the lane is settled; until then it is no reason to claim */
        else if (is_busy(claim->queue, entry->key, entry->hash, now))
            continue;
        else
            request->follow[request->claim.follow_key_count++] = arena_copy(claim->round.arena, entry->key);
        keyset_remove(follow, i);
    }
}

/* A key that always has more must not keep out all others: where there is one place, chance decides. */
static size_t most_followed(const struct claim *claim, int64_t keys, uint64_t draw)
{
    if (claim->full)
        return (size_t)keys;
    return keys == 1 ? draw >> 63 : (size_t)keys / 2;
}

/* A claim of many keys takes some events of each, one of few keys more of each: a claim is to be worth its round
 * trip and its commit. Where a key's events go one by one, more of them would only keep the claim open; and where other
 * keys wait for the sink, they would come before older events of those. */
static int64_t events_per_key(const struct queue *queue, int64_t keys, bool behind)
{
    if (behind)
        return 1;
    int64_t most = queue->config->max_events_per_key;
    int64_t share = EVENTS_PER_CLAIM / (queue->claiming.keys_locked > 0 ? queue->claiming.keys_locked : keys);
    if (share < EVENTS_PER_KEY_MIN)
        share = EVENTS_PER_KEY_MIN;
    if (share > EVENTS_ONE_BY_ONE && !queue->outlet->sink->traits)
        share = EVENTS_ONE_BY_ONE;
    return share < most ? share : most;
}

const struct claim_request *claim_request_make(struct claim *claim, bool holding, int64_t keys, instant_us now)
{
    struct queue *queue = claim->queue;
    struct arena *arena = claim->round.arena;
    key_book_turn(queue, now);
    uint64_t draw = rng_next(&queue->rng);
    size_t follow_max = most_followed(claim, keys, draw);
    size_t busy_max = queue->keys.destination_down.count + queue->keys.destination_down_ids.count +
                      batch_unsettled(queue->holds.orphans) + batch_unsettled(claim->batches) +
                      batch_unsettled(queue->holds.leased);
    /* Keys that the round settles ahead of the claim may be claimed again. Other keys that its session has locked must
     * not be, because the session would be given those locks once more. */
    enum lane_state busy = holding ? LANE_SETTLING : LANE_FINISHED;
    struct request *request = arena_alloc(arena, sizeof *request);
    request->keys = arena_array(arena, busy_max + 1, sizeof *request->keys);
    request->keyless_ids = arena_array(arena, busy_max + 1, sizeof *request->keyless_ids);
    request->follow = arena_array(arena, follow_max + 1, sizeof *request->follow);
    request->claim.max_keys = keys;
    request->claim.unreadable = queue->unreadable.ids;
    request->claim.unreadable_count = queue->unreadable.count;
    request->claim.followed_only = claim->full;
    request->claim.behind = ahead_is_behind(queue, now) && !claim->full;
    request->claim.events_per_key = events_per_key(queue, keys, request->claim.behind);
    request->claim.draw = draw;
    request->claim.busy_keys = request->keys;
    request->claim.busy_keyless_ids = request->keyless_ids;
    request->claim.follow_keys = request->follow;
    for (size_t i = 0; i < queue->keys.destination_down.count; i++)
        request->keys[request->claim.busy_key_count++] = queue->keys.destination_down.entries[i].key;
    for (size_t i = 0; i < queue->keys.destination_down_ids.count; i++)
        memcpy(&request->keyless_ids[request->claim.busy_keyless_count++],
               queue->keys.destination_down_ids.entries[i].key.data, sizeof(int64_t));
    add_busy_batches(request, queue->holds.orphans, LANE_SETTLING);
    add_busy_batches(request, claim->batches, busy);
    add_busy_leases(request, queue, now);
    add_followed(request, claim, busy, follow_max, now);
    claim->followed = request->follow;
    claim->followed_count = request->claim.follow_key_count;
    return &request->claim;
}

static bool has_lane(const struct batch *batch, struct span key, uint64_t hash)
{
    return batch_find(batch, key, hash, LANE_SETTLED) != NULL;
}

/* Keys that were asked for and may not have been looked at go back on the list. */
void claim_follow_again(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    for (size_t i = 0; i < claim->followed_count; i++) {
        struct span key = claim->followed[i];
        uint64_t hash = span_hash(key);
        if (!has_lane(claim->arriving, key, hash))
            key_book_more(queue, (struct book_key){key, hash}, NULL, SCAN_ID_MIN, now);
    }
}

/* Its lane is settled, the transaction goes on, and so does the lock. */
static bool is_held(const struct claim *holder, struct span key, uint64_t hash)
{
    for (const struct batch *batch = holder->batches; batch; batch = batch->next)
        if (batch->hold != HOLD_SESSION && has_lane(batch, key, hash))
            return true;
    return keyset_find(&holder->held, key, hash) != NULL;
}

/* The lane has every event of the key that was found. (An event between them that was committed since, after its
 * successor, is among the missed ids, which are looked at again.) */
static bool has_all(const struct lane *lane, struct id_range ids)
{
    return !id_range_is_empty(ids) && lane->first && lane->first->event.id <= ids.lo && ids.hi <= lane->last->event.id;
}

/* Whether `holder` has this key, in a lane or from an earlier lane of its open transaction: then it is followed there.
 */
static bool follow_at(struct claim *holder, const struct found_key *missed, uint64_t hash, instant_us now)
{
    struct span key = missed->key;
    struct lane *lane = find_lane(holder->batches, key, hash);
    if (lane)
        lane->more = lane->more || !has_all(lane, missed->ids); /* followed when the lane is settled */
    else if (!is_held(holder, key, hash))
        return false;
    else
        key_book_more(holder->queue, (struct book_key){key, hash}, holder, SCAN_ID_MIN, now);
    return true;
}

/* Those that this claim has asked for by name. */
static void note_followed(const struct claim *claim, struct keyset *ret)
{
    *ret = (struct keyset){0};
    if (claim->followed_count == 0 || claim->plan.missed.count == 0)
        return;
    keyset_init(ret, claim->followed_count);
    for (size_t i = 0; i < claim->followed_count; i++)
        (void)!keyset_put(ret, claim->followed[i], span_hash(claim->followed[i]), 0, NULL); /* it has room for all */
}

void claim_follow_missed(struct claim *claim, instant_us now)
{
    struct queue *queue = claim->queue;
    struct keyset followed;
    note_followed(claim, &followed);
    for (size_t i = 0; i < claim->plan.missed.count; i++) {
        const struct found_key *missed = &claim->plan.missed.at[i];
        struct span key = missed->key;
        uint64_t hash = span_hash(key);
        struct lane *lost = find_lane(queue->holds.orphans, key, hash);
        bool ours = lost != NULL;
        if (lost)
            lost->more = true;
        for (size_t c = 0; c < queue->claim_count; c++)
            ours |= follow_at(&queue->claims[c], missed, hash, now);
        /* If a key is asked for by name, no claim looks for its ids. */
        if (!ours && keyset_find(&followed, key, hash))
            key_book_busy_elsewhere(queue, (struct book_key){key, hash}, now);
    }
    keyset_done(&followed);
}

static void note_held(struct claim *claim, struct span key, uint64_t hash)
{
    bool added = keyset_put(&claim->held, key, hash, 0, NULL);
    assert(added && "has_room() of claim.c sees to it");
    (void)added;
}

void claim_free_settled(struct claim *claim)
{
    if (claim->settling == CLAIM_SETTLES_HALVES)
        return; /* not before the commit */
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        for (const struct lane *lane = batch_is_over(batch) ? batch->lanes : NULL; lane; lane = lane->next)
            if (lane->key.data)
                note_held(claim, lane->key, lane->hash);
            else
                claim->held_keyless++;
    settle_free_batches(&claim->batches);
}

void claim_note_laneless(struct claim *claim, const struct batch *batch)
{
    if (claim->plan.locked <= (int64_t)batch->lane_count)
        return;
    struct span rest = claim->plan.locked_keys, key;
    while (array_text_next(&rest, batch->arena, &key)) {
        uint64_t hash = span_hash(key);
        if (!has_lane(batch, key, hash))
            note_held(claim, key, hash);
    }
}

size_t claim_count_held(const struct claim *claim)
{
    size_t n = claim->held.count + claim->held_keyless;
    for (const struct batch *batch = claim->batches; batch; batch = batch->next)
        n += batch->lane_count;
    return n;
}

void claim_forget_held(struct claim *claim)
{
    claim->full = false;
    claim->held_keyless = 0;
    while (claim->held.count > 0)
        keyset_remove(&claim->held, claim->held.count - 1);
    struct keyset *follow = &claim->queue->keys.more;
    for (size_t i = 0; i < follow->count; i++)
        if (follow->entries[i].owner == claim)
            follow->entries[i].owner = NULL;
}

/* Not left out of every claim for now: claims would ask for the key over and over, without result. */
static bool is_free(const struct claim *claim, const struct keyset_entry *entry)
{
    const struct queue *queue = claim->queue;
    return !find_lane(queue->holds.orphans, entry->key, entry->hash) &&
           !keyset_find(&queue->keys.destination_down, entry->key, entry->hash);
}

bool claim_has_followed(const struct claim *claim)
{
    const struct queue *queue = claim->queue;
    for (size_t i = 0; i < queue->keys.more.count; i++) {
        const struct keyset_entry *entry = &queue->keys.more.entries[i];
        if ((!entry->owner || entry->owner == claim) && is_free(claim, entry))
            return true;
    }
    return false;
}

size_t claim_count_followed(const struct claim *claim)
{
    const struct queue *queue = claim->queue;
    size_t n = 0;
    for (size_t i = 0; i < queue->keys.more.count; i++) {
        const struct keyset_entry *entry = &queue->keys.more.entries[i];
        n += entry->owner == claim && is_free(claim, entry) && !find_lane(claim->batches, entry->key, entry->hash);
    }
    return n;
}
