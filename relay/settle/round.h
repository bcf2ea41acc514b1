/* relay/settle/round.h -- one round of statements on one connection, and how it went. */
#pragma once

#include "ordering/ordering.h"
#include "relay/base/arena.h"
#include "relay/base/error.h"
#include "relay/postgres/db.h"
#include "relay/postgres/sqlstate.h"

struct queue;
struct settle_job;

/* One round of statements on one connection and how it went. */
struct round {
    struct arena *arena;    /* parameters */
    struct settle_job *job; /* or NULL */
    size_t lock_count;      /* locks that the first statement has the session keep, or leases; 0: there is none such */
    const char *ahead;      /* a statement in front of the settlement's, or NULL; */
    const char *patience;   /* and of one that sets it, or NULL: see blocked_patience() */
    size_t settle_at;       /* the settlement's first, */
    size_t settle_end;      /* and the first that has nothing to do with it, */
    bool commit, begin;     /* which is one of these, */
    bool lasting;           /* or what lets the transaction last, */
    size_t unlock_count;    /* or frees so many locks that were kept, */
    bool claim;             /* then the claim's, */
    int64_t keys;           /* which may lock so many */
    bool failed;
    size_t failed_at; /* index of the first failure */
    const struct sqlstate_rule *rule;
    struct error error;
};

void round_begin(struct round *round);

/* The statements of a settlement, behind round->ahead and what sets round->patience. Owns `job` until round_done(). */
bool round_add_settlement(struct round *round, struct db *db, const struct queue *queue, struct settle_job *job,
                          struct error *err) MUST_CHECK;

/* How long the transaction's next statements wait for a lock, and last, where the session does not have it from us. */
struct statement round_patience(const struct queue *queue, const char *lock_timeout, struct arena *arena);

/* Notes the first failure. True when `res` is a good result. */
bool round_take(struct round *round, size_t index, const PGresult *res);

/* The first failure was in the settlement, and what is in the rows may be its cause. */
bool round_was_refused(const struct round *round);

/* The round's settlement has failed because a lease of it is not ours any more. */
bool round_met_lost_lease(const struct round *round);

/* The first failure was not in the statements before `index`: they are done. */
bool round_reached(const struct round *round, size_t index);

/* How many statements come before the claim's. */
size_t round_before_claim(const struct round *round);

void round_done(struct round *round);
