/* relay/claim/claim_state.h -- one connection that claims, as its parts share it. */
#pragma once

#include "ordering/ordering.h"
#include "relay/base/clock.h"
#include "relay/postgres/db.h"
#include "relay/queue/batch.h"
#include "relay/queue/holding.h"
#include "relay/queue/keyset.h"
#include "relay/settle/round.h"

struct queue;

enum claim_state {
    CLAIM_OFF,     /* no connection */
    CLAIM_IDLE,    /* no round under way; a transaction may be open, holding lanes */
    CLAIM_BUSY,    /* a round is under way */
    CLAIM_ROLLBACK /* a rollback is under way */
};

/* How the open transaction's lanes are settled. */
enum claim_settling {
    CLAIM_SETTLES_ALL,    /* every finished lane, with the commit */
    CLAIM_SETTLES_HALVES, /* by halves, see refusal.h: a half that has passed is not committed yet */
    CLAIM_SETTLES_NOTHING /* the side connection settles; the transaction ends when all lanes are settled */
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
    size_t held_keyless;    /* the same of events without a key; only counted */
    bool has_read;          /* the open transaction has claimed: DDL on the table waits for its end */
    bool full;              /* it holds as many locks as it may */
    bool unread;            /* more may have come than what was read */
    enum claim_settling settling;
    instant_us sent_at, began_at;
    instant_us retry_at;       /* no new claim before */
    const char *logged_reason; /* why it was not sent, as logged; NULL: nothing was logged yet */
    unsigned failures;
};

static inline const struct holding *claim_holding(const struct claim *claim)
{
    return holding_of_claim(claim->queue, claim->db);
}
