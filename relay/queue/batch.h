/* relay/queue/batch.h -- the events of one claim, in lanes.
 *
 * A lane holds the claimed events of one key, oldest first; an event without a key has a lane of its own. Everything
 * in a batch lives in its arena and goes with it. */
#pragma once

#include "relay/base/arena.h"
#include "relay/base/clock.h"
#include "relay/base/event.h"
#include "relay/base/halving.h"
#include "relay/queue/lane_life.h"
#include "sinks/delivery.h"

#include <stdbool.h>

/* By which a key's lane is found. A claim has up to 1,024 keys unless configured otherwise. */
#define LANE_CHAINS 256

/* Where locks or leases outlive the claim's transaction, so many times max_batch_bytes may be in memory. */
#define HELD_BYTES_FACTOR 4

struct lane;
struct queue;

/* One claimed event and its delivery. */
struct item {
    struct event event;
    struct delivery delivery;
    instant_us submitted_at;
    struct item *next; /* of the lane */
    struct lane *lane;
};

enum lane_outcome {
    LANE_DELIVERED, /* every event was acked */
    LANE_RELEASED,  /* given back: nobody's fault, or the destination's */
    LANE_RETRY,     /* `failed` is tried again after delay_us */
    LANE_CLOSED,    /* `failed` was the last attempt: the key is parked until somebody resumes it */
    LANE_DEAD       /* `failed` was the last attempt: it becomes a dead letter */
};

/* Who may write a field stands above it; lint checks it (tests/lint/owners.py). What a lane does and how its key is
 * held are `state` and `hold`. The booleans that are left are facts which do not exclude each other. */
struct lane {
    /* Written by relay/queue/batch.c only: which lane it is, and what has come. */
    struct span key;         /* absent: an event without a key */
    uint64_t hash;           /* of the key, or of the event's id, for the relay's own tables */
    struct batch *batch;     /* whose it is */
    struct lane *chain_next; /* of the batch's chain */
    struct item *last;       /* newest claimed; see batch_add_ended_wait() */
    size_t count;
    int64_t waited_id; /* of a lane without events: the event it waited for */
    bool delayed;      /* after its events, or first of all, comes one that is not due: `waited_id` */

    /* Written by relay/queue/batch.c only: by lane_move() and lane_hold(). */
    enum lane_state state;
    enum hold hold;

    /* Written by relay/queue/batch.c, relay/claim/ only: what the claim knows of the key. */
    bool more;        /* it has, or may have, events that were not claimed */
    bool waited;      /* it has an entry in outbox.parked */
    int64_t after_id; /* `delayed` until this event is done; EVENT_NO_ID: by time alone */

    /* Written by relay/queue/batch.c, relay/deliver/, relay/hold/lease.c only: what is sent. */
    struct item *unsent;  /* next to submit; NULL: all were, or nothing more is sent */
    struct item *unacked; /* first without a verdict of acked; NULL: all were acked */
    size_t in_flight;
    instant_us finished_at;

    /* Written by relay/queue/batch.c, relay/deliver/, relay/settle/, relay/hold/lease.c only: what became of it. */
    struct item *first; /* oldest event that is not settled; see batch_add_ended_wait() */
    size_t acked;       /* leading events with a verdict of acked, not settled */
    enum lane_outcome outcome;
    struct item *failed;
    int64_t release_us; /* RELEASED: not to be claimed again for this long */
    bool progressed;    /* events of it were settled ahead of its end */

    /* Written by relay/queue/batch.c, relay/deliver/, relay/side/unreadable.c only. */
    int64_t delay_us; /* RETRY, or `delayed`; negative: for ever */

    /* Written by relay/side/unreadable.c only: `delayed` says no more than that a row cannot be read. */
    const struct error *unreadable; /* why; NULL: it can */
    unsigned failures;              /* of that, so far; */
    bool counted;                   /* the last one is new */

    /* Written by relay/settle/, relay/hold/lease.c only. */
    size_t settling;      /* of those that are acked, on their way out of the table */
    struct item *start;   /* what `first` was when its batch began to be settled by halves; NULL: it did not */
    struct item *refused; /* the first one that the database does not let out of the table; overrules `failed` */
    instant_us settled_at;
    bool only_at_end;         /* none of its events is settled ahead of its end */
    instant_us blocked_until; /* LANE_BLOCKED */
    unsigned blocked_times;   /* how often another session held the row */

    /* Written by relay/hold/lease.c only. */
    instant_us leased_at; /* when its term was asked for */
    char token[37];       /* of its lease; empty: it has none */
    bool unrenewed;       /* the renewal under way has found its entry locked by somebody */

    /* Written by relay/deliver/ready.c only. */
    struct lane *ready_next, *ready_prev; /* of the deliverer's list */
    bool queued;                          /* in that list; only while LANE_OPEN and something is unsent */

    /* Written by relay/queue/batch.c, relay/settle/refusal.c only. */
    struct lane *next; /* of the batch */
};

struct batch {
    /* Written by relay/queue/batch.c only: whose it is, what has come, and its lanes by their states. */
    struct arena *arena;
    void *owner;                      /* the claim */
    struct queue *queue;              /* whose it is */
    struct lane *chains[LANE_CHAINS]; /* by lane->hash */
    size_t lane_count, event_count;
    size_t bytes; /* held: payloads, headers and bookkeeping */
    size_t bytes_max;
    bool spilled;         /* rows were left out because bytes_max was reached, */
    size_t spilled_bytes; /* so much of them */
    size_t unsettled;     /* lanes not yet LANE_SETTLED */
    size_t finished;      /* lanes in LANE_FINISHED */
    size_t open;          /* lanes in LANE_OPEN or LANE_STOPPED */
    size_t blocked;       /* lanes in LANE_BLOCKED */
    enum hold hold;

    /* Written by relay/queue/batch.c, relay/settle/refusal.c only. */
    struct lane *lanes, *lanes_end;

    /* Written by relay/claim/ only: what the claim that brings it may take, and has read. */
    size_t response_max; /* bytes of an answer that each event may get besides */
    size_t lane_max;     /* events of one key; 0: as many as come */
    instant_us sent_at;  /* when the claim of it was */
    bool keyless;        /* every event has a lane of its own, whatever its key */
    bool found_paused;   /* the claim has read that the queue is paused */

    /* Written by relay/settle/ only. */
    size_t in_settlement;   /* lanes that a settlement under way takes part of, or all */
    struct halving halving; /* of its settlement, since it did not pass as a whole */
    size_t refusals;        /* one after another, of one row each */
    instant_us refused_at;  /* for the first time */
    instant_us settled_at;  /* of the lane that was settled last */

    /* Written by relay/hold/lease.c only. */
    instant_us leased_at;  /* the earliest of its lanes', */
    instant_us renewed_at; /* and when they were asked for anew: granted or not */
    size_t unrenewed;      /* lanes whose terms did not begin anew with those of the others */

    /* Written by relay/queue/holds.c, relay/hold/orphan.c, relay/settle/settle.c only. */
    struct batch *next; /* of its holder's list: see holds.h */

    /* Written by relay/claim/, relay/hold/lease.c, relay/route/route.c only. */
    struct batch *arrived_next; /* of the queue: claimed and not routed */
};

struct batch *batch_new(size_t bytes_max, struct queue *queue, void *owner);
void batch_free(struct batch *batch); /* nothing of it may be in flight */

/* Adds a copy of `event`, which must come after every earlier event of its key. False and *err (ERROR_INTERNAL) when
 * it does not: the claim must not be delivered. When its lane has lane_max events, the event is left out and the lane
 * gets `more`. When the batch is full the event is left out, its lane, if there is one, gets `more`, and batch->spilled
 * is set; the first event always fits. */
bool batch_add(struct batch *batch, const struct event *event, size_t extra_columns, struct error *err) MUST_CHECK;

/* A key, or an event without one, that waited for event `id` and has no event any more: a finished lane without
 * events, so that its wait is settled too. */
void batch_add_ended_wait(struct batch *batch, struct span key, int64_t id);

/* An event that is not due: what comes after it of its key is left out. Where it is the first of its key, it makes a
 * finished lane without events, so that its wait is written down. Returns its lane, NULL when it is left out itself. */
struct lane *batch_add_delayed(struct batch *batch, struct span key, int64_t id, int64_t delay_us);

/* The lanes that have this hash, and others: the first of them, and NULL behind the last `chain_next`. */
struct lane *batch_chain(const struct batch *batch, uint64_t hash);

/* The lane of a key, whose span_hash() is `hash`; NULL when there is none in a state up to `last`. */
struct lane *batch_find(const struct batch *batch, struct span key, uint64_t hash, enum lane_state last);

/* Of the event without a key that is the lane's, or that it waited for. */
int64_t lane_keyless_id(const struct lane *lane);

/* `lane` was read by a claim sent at `sent_at`: does `earlier` have events of the same key that were not, or not yet,
 * settled at that time? */
bool lane_repeats(const struct lane *lane, const struct lane *earlier, instant_us sent_at);

/* The lane, its batch's counts with it, goes to another state. The move must be one of lane_life.c. */
void lane_move(struct lane *lane, enum lane_state to);

/* The key of the lane, or what is not settled of the batch, is held in another way. The move must be one of
 * lane_life.c. */
void lane_hold(struct lane *lane, enum hold to);
void batch_hold(struct batch *batch, enum hold to);

/* The key is not ours any more: no more event of the lane is sent. */
static inline bool lane_is_lost(const struct lane *lane)
{
    return lane->hold == HOLD_LOST || lane->batch->hold == HOLD_LOST;
}

/* Lanes that are not settled, of these batches together. */
size_t batch_unsettled(const struct batch *batches);

/* All of it is settled, and the session has no lock left of it that is to be freed: see session_lock.h. */
bool batch_is_over(const struct batch *batch);
