/* relay/queue.h -- one queue at work: the parts that claim, route, deliver and settle share.
 *
 * relay/claim.c fills batches, route.c and deliver.c empty them, settle.c writes down what became of them. Nothing
 * outside relay/ sees this. */
#ifndef RELAY_QUEUE_H
#define RELAY_QUEUE_H

#include "ordering/ordering.h"
#include "relay/base/log.h"
#include "relay/batch.h"
#include "relay/circuit.h"
#include "relay/config.h"
#include "relay/db.h"
#include "relay/keyset.h"
#include "relay/metrics.h"
#include "relay/order_watch.h"
#include "relay/route.h"
#include "relay/table.h"
#include "sinks/sink.h"

struct queue;

/* A destination that does not exist or refuses us, apart from its sink. */
struct route_circuit {
    char *destination;
    struct circuit circuit;
    struct route_circuit *next;
};

/* A sink and the lanes that wait for it. */
struct outlet {
    struct sink *sink;
    const struct sink_config *config;
    struct lane *ready, *ready_end; /* see ready.h */
    size_t ready_count, lanes_in_flight;
    bool stopping;                /* no lane goes on to its next event */
    struct circuit circuit;       /* of the whole sink */
    struct route_circuit *routes; /* troubled destinations only */
    size_t route_count;
    instant_us last_ack_at;
    instant_us taken_sent_at; /* when the newest event that was acked had been submitted */
    struct keyset suspects;   /* events in flight when a connection broke; `at` is when */
    const struct log *log;
    struct rng rng;
};

/* What is settled together in one transaction. */
struct settle_job {
    struct arena *arena;
    struct settlement settlement;
    struct lane **lanes;
    size_t lane_count;
    size_t things;       /* that are written: acked events, and ends of lanes */
    struct lane *thing;  /* whose the first of them is */
    size_t missing;      /* events that were gone from the table */
    instant_us doubt_at; /* refusal.doubt_at when it was collected */
};

/* Whether the table refuses some rows or all: see relay/refusal.h. */
struct refusal {
    instant_us doubt_at;    /* it has refused something, and let nothing go since; 0: no doubt */
    instant_us blame_until; /* it has let others go, so what it refuses is to blame itself */
    instant_us trial_at;    /* no key is claimed to find out before */
    int64_t blamed_id;      /* the event whose row was blamed last, */
    bool blamed;            /* if one was */
};

/* How far its claims may go ahead of its sink: see relay/ahead.h. */
struct ahead {
    instant_us measured_at; /* when `delivered` events had been, in all */
    uint64_t delivered;
    bool known;              /* that has been measured once */
    bool slow;               /* few events a second were, then */
    instant_us behind_until; /* and more lanes wait for the sink than it has places */
};

/* One round of statements on one connection and how it went. */
struct round {
    struct arena *arena;    /* parameters */
    struct settle_job *job; /* or NULL */
    size_t keep_count;      /* locks that the first statement has the session keep, or leases; 0: there is none such */
    const char *ahead;      /* a statement in front of the settlement's, or NULL */
    size_t settle_at;       /* the settlement's first, */
    size_t settle_end;      /* and the first that has nothing to do with it, */
    bool commit, begin;     /* which is one of these, */
    size_t free_count;      /* or frees so many locks that were kept, */
    bool claim;             /* then the claim's, */
    int64_t keys;           /* which may lock so many */
    bool failed;
    size_t failed_at; /* index of the first failure */
    const struct sqlstate_rule *rule;
    struct error error;
};

enum claim_state {
    CLAIM_OFF,     /* no connection */
    CLAIM_IDLE,    /* no round under way; a transaction may be open, holding lanes */
    CLAIM_BUSY,    /* a round is under way */
    CLAIM_ROLLBACK /* a rollback is under way */
};

/* One connection that claims. */
struct claim {
    struct queue *queue;
    size_t index;
    struct db *db;
    enum claim_state state;
    bool in_transaction;
    struct round round;
    struct claim_plan plan;
    const struct span *followed; /* followed keys that the claim under way asks for; in the round's arena */
    size_t followed_count;
    struct batch *arriving; /* being read */
    struct batch *batches;  /* held; their locks belong to the open transaction */
    struct keyset held;     /* keys that the open transaction has locked and that have no lane in `batches` */
    size_t held_solos;      /* the same of events without a key; only counted */
    bool in_vain;           /* the open transaction has locked what a claim then found nothing of */
    bool full;              /* it holds as many locks as it may */
    bool in_parts;          /* what it has settled is not committed yet */
    instant_us sent_at, began_at;
    instant_us retry_at; /* no new claim before */
    unsigned failures;
};

enum side_state {
    SIDE_OFF,
    SIDE_IDLE,
    SIDE_SETTLING,
    SIDE_PROBING,
    SIDE_CHECKING,
    SIDE_PEEKING,
    SIDE_UPKEEP,
    SIDE_RENEWING
};

/* The queue's other connection: settles what must not wait for a claim's end, and asks small questions. */
struct side {
    struct db *db;
    enum side_state state;
    struct round round;
    instant_us probe_at, retry_at;
    int64_t probe_interval_us;
    unsigned failures;
    bool probed;             /* since a connection came up for the last time: see side_confirm() */
    bool unasked;            /* the probe under way was sent before */
    bool settle_failed;      /* and no probe was sent since: the next one goes first */
    bool check_empty, empty; /* --until-empty: asked for; the last answer */
    bool outdated;           /* something has come since the question under way was sent */
    bool peek;               /* asked for: see relay/peek.h */
    bool upkept;             /* the last round was an upkeep task that goes ahead of what else is due */
};

enum upkeep_task {
    UPKEEP_LOOK,
    UPKEEP_WINDOW,
    UPKEEP_LEASES,
    UPKEEP_DUE,
    UPKEEP_AFTER,
    UPKEEP_SCHEDULE,
    UPKEEP_DAYS,
    UPKEEP_EXPIRE,
    UPKEEP_PURGE,
    UPKEEP_TASKS
};

/* See upkeep.h. */
struct upkeep {
    instant_us due_at[UPKEEP_TASKS];
    enum upkeep_task task; /* under way */
    instant_us began_at;   /* that one */
    bool looked;           /* whether the queue is paused is known */
    bool told_paused;      /* that it is, was reported */
    instant_us found_at;   /* a claim has found it paused; -1: none has */
    int64_t due_to;        /* what had become due until then was found, in microseconds since 1970; 0: nobody looked */
    int64_t asked_to;      /* of the events that others wait for, those up to this one were asked about */
    uint64_t purged;       /* dead letters, and nothing said of them yet */
};

struct queue {
    const struct queue_config *config;
    const struct config *process;
    const struct log *log;
    struct table *table;
    struct arena *names; /* holds `variables` */
    const struct sql_variable *variables;
    char *empty_sql, *purge_sql, *due_sql; /* the latter only where what is not due lets others pass */
    char *after_sql;                       /* only where events come after others */
    struct queue *next;                    /* gets what was delivered; NULL: there is none */
    struct ordering *ordering;
    struct route *route;
    struct outlet *outlet;
    struct claim *claims;
    size_t claim_count;
    struct side side;
    struct upkeep upkeep;
    struct batch *arrived;     /* claimed, not routed; linked by arrived_next */
    struct batch *orphans;     /* their claim is lost */
    struct batch *leased;      /* held by leases: see lease.h */
    struct keyset follow;      /* keys with more events; owner = the claim that holds them, or NULL */
    struct keyset later;       /* such keys that others had when they were asked for: followed again from then on */
    struct keyset avoid;       /* keys whose destination is down */
    struct keyset avoid_solos; /* the same for events without a key; the key is the id's bytes */
    struct refusal refusal;
    struct ahead ahead;
    instant_us vain_until; /* what was claimed for destinations that are down has its price paid by then */
    instant_us poll_at;
    instant_us pace_at;  /* nothing is claimed before, so that claims are worth what they cost */
    instant_us claim_by; /* and not only look whether there is something */
    int64_t idle_us;
    bool work_known;          /* the last claim found something */
    uint64_t trouble;         /* see report_unreachable() */
    bool leases;              /* `ordering: lease` */
    char *lease_owner;        /* who we are, in its leases */
    bool lease_doubted;       /* some lease may not be ours any more */
    instant_us renew_at;      /* no lease is renewed before */
    instant_us owner_lost_at; /* the backend with which leases end, for the last time */
    bool stopping;
    bool paused;        /* by somebody: nothing is claimed, nothing more is sent */
    bool closed;        /* its window is, or nobody knows yet: nothing is claimed */
    int64_t key_limit;  /* keys_per_claim, or less while the lock table is full */
    int64_t keys_found; /* by the last claim that found any */
    bool lean;          /* the last claim that ended had an event or two of each key, and was quickly done with them */
    int64_t coming_milli; /* thousandths of an event, by what claims have found; see pace.c */
    instant_us coming_at;
    bool took_all; /* the last claim left nothing, that is known */
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

/* There is something to claim: it looks at once. */
void queue_wake(struct queue *queue, instant_us now);

/* Gives every event that has arrived its destination and hands its lane to the outlet. */
void queue_route_claimed(struct queue *queue);

/* Ends every claim whose lanes are all finished. */
void queue_settle_resolved(struct queue *queue, instant_us now);

/* Nothing is claimed, in flight or waiting to be settled. */
bool queue_is_quiet(const struct queue *queue);

/* It has no event, and asks for some in vain. Not while the database or a destination is away: then nobody knows. */
bool queue_is_idle(const struct queue *queue);

#endif
