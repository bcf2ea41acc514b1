/* relay/queue/asks.h -- what claims and the relay's end ask of the side connection, and what that has answered. The
 * asking module sets a flag, the side connection sets another one with the answer: neither calls the other. */
#pragma once

#include "relay/base/clock.h"

#include <stdbool.h>

/* Written by relay/side/, relay/claim/peek.c, relay/queue/pace.c, relay/relay_end.c, relay/queue/asks.h only. */
struct asks {
    bool up;              /* the side connection has a session */
    bool confirm;         /* question: how far do ids go, by a probe that is sent from now on? */
    bool probed;          /* answer: a probe that was sent since `confirm` was asked has come back */
    instant_us probed_at; /* when the first of them did: claims can look from then on */
    bool check_empty;     /* question, for --until-empty: is the queue empty? */
    bool empty;           /* answer: the last one */
    bool outdated;        /* events have come since the question under way was sent */
    bool peek; /* question: is there anything to claim? See relay/claim/peek.h; pace_peeked() has the answer */
};

/* What a module tells one in a later folder, which looks at it in its turn and takes it back. Written by
 * relay/settle/settle.c, relay/queue_open.c, relay/side/unreadable.c, relay/claim/claim.c only. */
struct told {
    bool handed_on;    /* the next queue got events, and was not woken since: settle.c tells queue_hand_on() */
    bool retry_claims; /* claims that wait after a failure may be sent at once, because a row was found, or can be read:
                        * unreadable.c tells claim.c */
};

/* A connection is new, maybe on another server: nothing is claimed until a probe says how far ids go there. */
static inline void asks_confirm(struct asks *asks)
{
    asks->probed = false;
    asks->confirm = true;
}
