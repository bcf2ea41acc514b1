/* relay/queue/side_requests.h -- what claims and the relay's end ask of the side connection, and its answers. The
 * asking module sets a flag, the side connection sets another one with the answer: neither calls the other. */
#pragma once

#include "relay/base/clock.h"

#include <stdbool.h>

/* What a queue wants to know before it rests: see relay/rest/rest.h. */
enum rest_question_kind {
    REST_ASKS_NOTHING,
    REST_ASKS_WRITERS, /* may the queue rest, and who writes to its tables? */
    REST_ASKS_LEFT,    /* which of those that the last answer named are left? */
    REST_ASKS_LOOK     /* is there anything to claim, and what becomes due when? */
};

/* Written by relay/side/, relay/rest/, relay/claim/peek.c, relay/queue/pace.c, relay/relay_end.c,
 * relay/queue/side_requests.h only. */
struct side_requests {
    bool new_probe;               /* request: how far do ids go, by a probe that is sent from now on? */
    bool probe_answered;          /* answer: a probe that was sent since that request has come back */
    instant_us probe_answered_at; /* when the first of them did: claims can look from then on */
    bool check_empty;             /* request, for --until-empty: is the queue empty? */
    bool found_empty;             /* answer: the last one */
    bool answer_outdated;         /* events have come since the question under way was sent */
    bool peek;                    /* request: is there anything to claim? See peek.h; pace_peeked() has the answer */
    enum rest_question_kind rest; /* request; its answer is in rest_answer, */
    unsigned rest_number;         /* with this number */
};

/* A connection is new, maybe on another server: nothing is claimed until a probe says how far ids go there. */
static inline void side_requests_probe(struct side_requests *requests)
{
    requests->probe_answered = false;
    requests->new_probe = true;
}
