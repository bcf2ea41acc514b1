/* relay/queue/queue.h -- one queue at work: the parts that claim, route, deliver and settle share.
 *
 * relay/claim/claim.c fills batches, route.c and deliver.c empty them, settle.c writes down what became of them.
 * Nothing outside relay/ sees this. */
#ifndef RELAY_QUEUE_H
#define RELAY_QUEUE_H

#include "ordering/guarded_text.h"
#include "ordering/ordering.h"
#include "relay/base/backoff.h"
#include "relay/base/log.h"
#include "relay/config/config.h"
#include "relay/queue/asks.h"
#include "relay/queue/batch.h"
#include "relay/queue/holds.h"
#include "relay/queue/metrics.h"
#include "relay/queue/queue_parts.h"

struct claim;
struct order_watch;
struct outlet;
struct route;
struct side;
struct table;
struct upkeep;

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
    bool retry_at_once; /* claims that wait after a failure may be sent at once: a row was found, or can be read */
    struct queue *next; /* gets what was delivered; NULL: there is none */
    bool handed_on;     /* `next` got events, and was not woken since: queue_hand_on() */
    struct ordering *ordering;
    struct route *route;
    struct outlet *outlet;
    struct claim *claims;
    size_t claim_count;
    struct holds holds;
    struct side *side;
    struct asks asks;
    bool *offered; /* one a claim: the side connection may settle what is finished of it; see claim_offer() */
    struct upkeep *upkeep;
    bool looked;             /* whether the queue is paused is known */
    const char *patience;    /* of the side connection's statements, as a lock_timeout */
    struct db *side_db;      /* leases end with the backend of this connection */
    bool side_busy;          /* the side connection settles something */
    struct batch *arrived;   /* claimed, not routed; linked by arrived_next */
    instant_us asking_since; /* of the claims under way, when the first was sent; INSTANT_NEVER: none is */
    struct key_book keys;
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
    return lane->batch->queue;
}

/* Rows are known that cannot be read: ordering_guard() goes ahead of what may look at them. */
static inline bool queue_is_guarded(const struct queue *queue)
{
    return queue->unreadable.count > 0;
}

/* A claim was told that the queue is paused: nothing more is claimed or sent. */
static inline void queue_found_paused(struct queue *queue, instant_us now)
{
    queue->paused = true;
    queue->found_paused_at = now;
}

#endif
