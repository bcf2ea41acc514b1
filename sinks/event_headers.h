/* sinks/event_headers.h -- an event's `headers`, a JSON object, as pairs of bytes. Pure.
 *
 *   event_headers_read -> use the list -> event_headers_done
 *
 * Every sink that sends them one by one reads them here. */
#pragma once

#include "relay/base/error.h"
#include "relay/base/span.h"

#define EVENT_HEADER_REPLAYED "pgcourier-replayed" /* which no event has of its own: a replay adds it */

struct event_header {
    struct span name;  /* NUL-terminated, with no other NUL in it; may be empty */
    struct span value; /* a string's own bytes; absent for null; anything else as it is written, but for space */
};

struct event_headers {
    struct event_header *list; /* in the order of the object; of entries with one name only the last */
    size_t count;
    char *bytes; /* what the list points into */
};

/* Absent `json` is an empty list. True: event_headers_done() frees what *ret has. False and *err (ERROR_REFUSED) when
 * it is not JSON, not an object, or has a string that is no text; *ret is then untouched. */
bool event_headers_read(struct span json, struct event_headers *ret, struct error *err) MUST_CHECK;
void event_headers_done(struct event_headers *headers);
