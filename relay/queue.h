/* relay/queue.h -- one queue at work: the parts that claim, route, deliver and settle share.
 *
 * relay/claim.c fills batches, route.c and deliver.c empty them, settle.c writes down what became of them. Nothing
 * outside relay/ sees this. */
#ifndef RELAY_QUEUE_H
#define RELAY_QUEUE_H

#include "ordering/guarded_text.h"
#include "ordering/ordering.h"
#include "relay/ahead.h"
#include "relay/asks.h"
#include "relay/base/log.h"
#include "relay/batch.h"
#include "relay/blocked.h"
#include "relay/claim.h"
#include "relay/config.h"
#include "relay/db.h"
#include "relay/keyset.h"
#include "relay/lease.h"
#include "relay/metrics.h"
#include "relay/order_watch.h"
#include "relay/outlet.h"
#include "relay/pace.h"
#include "relay/refusal.h"
#include "relay/route.h"
#include "relay/side.h"
#include "relay/table.h"
#include "relay/unreadable.h"
#include "relay/upkeep.h"

struct queue {
    const struct queue_config *config;
    const struct config *process;
    const struct log *log;
    struct table *table;
    struct arena *names; /* holds `variables` */
    const struct sql_variable *variables;
    char *purge_sql;
    struct guarded_text empty, due; /* the latter only where what is not due lets others pass */
    struct guarded_text after;      /* only where events come after others */
    struct unreadable unreadable;
    struct queue *next; /* gets what was delivered; NULL: there is none */
    bool handed_on;     /* `next` got events, and was not woken since: queue_hand_on() */
    struct ordering *ordering;
    struct route *route;
    struct outlet *outlet;
    struct claim *claims;
    struct batch ***held; /* one a claim: the list of what it holds */
    size_t claim_count;
    struct side side;
    struct asks asks;
    bool *offered; /* one a claim: the side connection may settle what is finished of it; see claim_offer() */
    struct upkeep upkeep;
    struct batch *arrived;     /* claimed, not routed; linked by arrived_next */
    struct batch *orphans;     /* their claim is lost */
    instant_us asking_since;   /* of the claims under way, when the first was sent; INSTANT_NEVER: none is */
    struct batch *leased;      /* held by leases: see lease.h */
    struct keyset follow;      /* keys with more events; owner = the claim that holds them, or NULL */
    struct keyset later;       /* such keys that others had when they were asked for: followed again from then on */
    struct keyset avoid;       /* keys whose destination is down */
    struct keyset avoid_solos; /* the same for events without a key; the key is the id's bytes */
    struct refusal refusal;
    struct blocked blocked;
    struct ahead ahead;
    instant_us vain_until; /* what was claimed for destinations that are down has its price paid by then */
    struct pace pace;
    uint64_t trouble; /* see report_unreachable() */
    struct leases leases;
    bool stopping;
    bool paused;                /* by somebody: nothing is claimed, nothing more is sent */
    instant_us found_paused_at; /* by a claim; its locks may be younger than what the side connection has looked at */
    bool closed;                /* its window is, or nobody knows yet: nothing is claimed */
    bool window_known;          /* whether it is open; true where there is none */
    int64_t key_limit;          /* keys_per_claim, or less while the lock table is full */
    int64_t keys_locked;        /* by the last claim that brought events, also those that it brought none of */
    bool lean; /* the last claim that ended had an event or two of each key, and was quickly done with them */
    struct metrics metrics;
    struct order_watch *watch;
    struct rng rng;
};

static inline struct queue *lane_queue(const struct lane *lane)
{
    return ((struct claim *)lane->batch->owner)->queue;
}

struct queue_options {
    const struct config *process;
    const struct queue_config *config;
    struct outlet *outlet;
    const struct log *log;
    uint64_t seed;
};

/* Blocking, at start-up: reads the table from the catalogue with `conn`, prepares everything, connects nothing. What
 * the options point at must outlive the queue. NULL and *err on failure. */
struct queue *queue_open(const struct queue_options *options, PGconn *conn, struct error *err) MUST_CHECK;
void queue_close(struct queue *queue); /* NULL is a no-op; rolls back what is open */

/* Asks whether anything is left to deliver: no row when nothing is. */
struct statement queue_empty_question(const struct queue *queue, struct arena *arena);

/* Rows are known that cannot be read: ordering_guard() goes ahead of what may look at them. */
static inline bool queue_is_guarded(const struct queue *queue)
{
    return queue->unreadable.count > 0;
}

/* There is something to claim: it looks at once. */
void queue_wake(struct queue *queue, instant_us now);

/* A claim was told that the queue is paused: nothing more is claimed or sent. */
static inline void queue_found_paused(struct queue *queue, instant_us now)
{
    queue->paused = true;
    queue->found_paused_at = now;
}

/* Wakes the next queue if a settlement has given it events. */
void queue_hand_on(struct queue *queue, instant_us now);

/* Gives every event that has arrived its destination and hands its lane to the outlet. */
void queue_route_claimed(struct queue *queue);

/* Ends every claim whose lanes are all finished. */
void queue_settle_resolved(struct queue *queue, instant_us now);

/* Nothing is claimed, in flight or waiting to be settled. */
bool queue_is_quiet(const struct queue *queue);

/* It has no event, and asks for some in vain. Not while the database or a destination is away: then nobody knows. */
bool queue_is_idle(const struct queue *queue);

#endif
