/* sinks/event_headers.h -- an event's `headers`, a JSON object, as pairs of bytes. Pure. */
#ifndef SINKS_EVENT_HEADERS_H
#define SINKS_EVENT_HEADERS_H

#include "relay/base/arena.h"

#define EVENT_HEADERS_MAX 64
#define EVENT_HEADER_REPLAYED "pgcourier-replayed" /* one more, which no event has of its own: a replay adds it */

struct event_header {
    struct span name;  /* NUL-terminated; may be empty */
    struct span value; /* a string's own bytes; anything else as compact JSON; absent for null */
};

struct event_headers {
    const struct event_header *list; /* in the order of the object */
    size_t count;
};

/* Absent `json` is an empty list. All in the arena. False and *err (ERROR_REFUSED) when it is not an object, not JSON
 * or has more than EVENT_HEADERS_MAX entries besides that one; *ret is then untouched. */
bool event_headers_parse(struct span json, struct arena *arena, struct event_headers *ret,
                         struct error *err) MUST_CHECK;

#endif
