/* relay/claim.h -- connections that lock keys and read their oldest events.
 *
 * A claim's transaction stays open while its lanes are delivered, because its locks are what keeps other relays away;
 * it has then only read, so it holds back neither vacuum nor anybody else. When all lanes are finished, their
 * settlement, the COMMIT and the next claim travel in one round trip. So they do when there is a straggler, whose lock
 * is kept beyond the transaction (keep.h). Where that cannot be, finished lanes are settled on the side connection and
 * more keys are claimed into the same transaction. */
#ifndef RELAY_CLAIM_H
#define RELAY_CLAIM_H

#include "ordering/ordering.h"
#include "relay/base/clock.h"
#include "relay/batch.h"
#include "relay/db.h"
#include "relay/keyset.h"
#include "relay/round.h"

struct pollset;
struct queue;
struct settle_job;

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
    bool has_read;          /* the open transaction has claimed: who wants the table for himself waits for its end */
    bool full;              /* it holds as many locks as it may */
    bool unread;            /* more may have come than what was read */
    bool in_parts;          /* what it has settled is not committed yet */
    bool aside;             /* and nothing will be: it is settled on the side connection, before the transaction ends */
    instant_us sent_at, began_at;
    instant_us retry_at; /* no new claim before */
    unsigned failures;
};

/* A connection with stragglers may come to hold so many times keys_per_claim locks, */
#define CLAIM_LOCKS_FACTOR 2

void claim_open(struct queue *queue, struct claim *claim, size_t index);
void claim_close(struct claim *claim);

/* One turn for every claim of the queue: takes results, starts rounds. New batches go to queue->arrived. */
void claim_ready(struct queue *queue, const struct pollset *ps, instant_us now);
void claim_prepare(struct queue *queue, struct pollset *ps, instant_us now);

/* All lanes are finished, or all that are left are stragglers whose locks can be kept. Where keys are leased: it has
 * brought some. */
bool claim_is_due(struct claim *claim, instant_us now);

/* Leases what it has brought, or settles what is finished, commits, and claims again if there is reason to. Or settles
 * some of it, if the database has refused more. */
void claim_finish(struct claim *claim, instant_us now);

/* Every lane waits to be settled or is, and nothing of them is on its way out on the side connection: the locks have
 * to outlive that transaction. */
bool claim_is_finished(const struct claim *claim);

/* The database has refused to settle some of its lanes: they are settled a few at a time, before the transaction ends.
 */
bool claim_was_refused(const struct claim *claim);

/* Sets queue->offered: the claims of which the side connection may settle what is finished, because some lanes have
 * been under way for long and the claim's own connection cannot settle before they end. */
void claim_offer(struct queue *queue, instant_us now);

#endif
