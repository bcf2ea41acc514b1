/* sinks/delivery.h -- one attempt to put one event into one destination. */
#pragma once

#include "relay/base/arena.h"
#include "relay/base/error.h"
#include "relay/base/event.h"
#include "sinks/response.h"

enum verdict {
    VERDICT_NONE = 0, /* undecided; the zero value, never reported by a sink */
    VERDICT_ACKED,    /* the destination holds it as durably as it ever will */
    VERDICT_RETRY,    /* did not arrive; the same bytes may arrive later */
    VERDICT_REJECTED, /* did not arrive; the same bytes never will */
    VERDICT_UNKNOWN   /* may have arrived; a retry may duplicate it */
};

struct sink;

struct delivery {
    const struct event *event; /* borrowed; valid until the verdict */
    struct span destination;   /* topic, stream, path or URL chosen by the router; NUL follows it */
    bool routed_by_event;      /* parts of the event are in it, so that a wrong one may be the event's doing */
    struct arena *arena;       /* the batch's: lives until after the verdict */
    void *owner;               /* the engine's; sinks leave it alone */
    struct response *response; /* what the destination answers goes here; NULL: nobody asks for it */
    bool joined;               /* to a run (SINK_TAKES_RUNS): must not arrive unless the one submitted before it does */

    enum verdict verdict;
    /* Whose fault a failure is, unless ACKED. ERROR_UNREACHABLE and ERROR_ROUTE: the destination's, for certain.
     * ERROR_OVERLOADED and ERROR_TIMEOUT: the destination's, unless it is taking other events meanwhile.
     * ERROR_BYSTANDER: nobody's; it fell with another event and may be sent again at once.
     * ERROR_LOST_CLAIM: nobody's; it was called back (sink_type.cancel).
     * Anything else: this event's. In the arena. */
    struct error *cause;
    int64_t retry_after_us; /* how long the destination asked us to wait; 0 = it did not say */

    struct sink *sink;     /* who took it; set by sink_submit() */
    void *sink_data;       /* the sink's own, from submit to the verdict */
    struct delivery *next; /* the sink's own list link, from submit to the verdict */
};

/* Gives `d` its one verdict. `cause` is copied; NULL exactly when ACKED. A second verdict is a bug and aborts. From
 * then on `d` and its links belong to the engine: read d->next before. */
void delivery_resolve(struct delivery *d, enum verdict verdict, const struct error *cause);

/* The same for a failure, with its cause spelled here. */
void delivery_fail(struct delivery *d, enum verdict verdict, enum error_kind kind, const char *format, ...)
    PRINTF_LIKE(4, 5);

const char *verdict_name(enum verdict verdict);
