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
    size_t lock_count; /* session locks, or leases, that the first statement takes; 0: there is no such statement */
    const char *ahead; /* a statement in front of the settlement's, or NULL; */
    const char *lock_timeout; /* and of one that sets this, or NULL: see blocked_lock_timeout() */
    size_t settle_at;         /* the settlement's first statement, */
    size_t settle_end;        /* and the first behind the settlement, */
    bool commit, begin;       /* which is one of these, */
    bool lasting;             /* or what lets the transaction last, */
    size_t unlock_count;      /* or frees so many session locks, */
    bool claim;               /* then the claim's, */
    int64_t keys;             /* which may lock so many */
    bool failed;
    size_t failed_at; /* index of the first failure */
    const struct sqlstate_rule *rule;
    enum db_refusal refusal; /* by that rule, while the session lives */
    struct error error;
};

void round_begin(struct round *round);

/* The statements of a settlement, behind round->ahead and one that sets round->lock_timeout. Owns `job` until
 * round_done(). */
bool round_add_settlement(struct round *round, struct db *db, const struct queue *queue, struct settle_job *job,
                          struct error *err) MUST_CHECK;

/* lock_timeout and statement_timeout of the transaction's next statements, where the session does not have ours. */
struct statement round_timeouts(const struct queue *queue, const char *lock_timeout, struct arena *arena);

/* Notes the first failure. True when `res` is a good result. */
bool round_take(struct round *round, size_t index, const PGresult *res);

/* The first failure was in the settlement, and a row may be its cause. */
bool round_was_refused(const struct round *round);

/* The settlement named where rows were read, and that may be why it was refused: a row is not there any more. */
bool round_may_have_moved_rows(const struct round *round);

/* The round's settlement has failed because a lease of it is not ours any more. */
bool round_met_lost_lease(const struct round *round);

/* The first failure was not in the statements before `index`: they are done. */
bool round_reached(const struct round *round, size_t index);

/* How many statements come before the claim's. */
size_t round_before_claim(const struct round *round);

void round_done(struct round *round);
