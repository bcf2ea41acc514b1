/* relay/claim/claim_wait.h -- what a claim waits for, until when, and how many keys it may ask for when it may go.
 *
 * One answer for all who ask: no claim is sent before `until`, the loop sleeps no longer than until then, and
 * --log-level=debug shows the reason. What the claim's own connection waits for is in claim.c: start_claim(),
 * is_due(). */
#pragma once

#include "relay/base/clock.h"

#include <stdint.h>

struct claim;

/* claim_waits_for() has the words for these. */
enum claim_reason {
    CLAIM_WAITS_FOR_NOTHING,
    CLAIM_WAITS_FOR_END,         /* the relay stops: nothing more is claimed */
    CLAIM_WAITS_FOR_RELAY,       /* another relay serves the table by other locks */
    CLAIM_WAITS_FOR_RESUME,      /* the queue is paused */
    CLAIM_WAITS_FOR_WINDOW,      /* the queue's window is closed */
    CLAIM_WAITS_FOR_PROBE,       /* the relay does not know yet how far ids go */
    CLAIM_WAITS_FOR_RETRY,       /* its last round has failed */
    CLAIM_WAITS_FOR_PACE,        /* a claim is to be worth its cost, and to keep the queue's rate */
    CLAIM_WAITS_FOR_DESTINATION, /* claims for a destination that is down must not keep the database busy */
    CLAIM_WAITS_FOR_SETTLEMENT,  /* acked events of lost claims are settled first */
    CLAIM_WAITS_FOR_SEARCH,      /* a row that cannot be read is being searched for: a claim would fail again */
    CLAIM_WAITS_FOR_TURN,        /* another claim of the queue is under way */
    CLAIM_WAITS_FOR_EVENTS,      /* nothing is known to be there: the table is looked at again later */
    CLAIM_WAITS_FOR_SINK,        /* the sink, or the destination of all events, is down */
    CLAIM_WAITS_FOR_ROOM,        /* the sink has enough to do */
    CLAIM_REASONS
};

struct claim_wait {
    instant_us until;         /* INSTANT_NEVER: something else than time ends the wait */
    enum claim_reason reason; /* of several, that which lasts longest */
    int64_t keys;             /* it may ask for so many now; 0 while it waits */
};

struct claim_wait claim_wait(struct claim *claim, instant_us now);

/* As the log has it: "claim.waits for=...". */
const char *claim_waits_for(enum claim_reason reason);
