/* relay/base/event.h -- the noun everything else is about. */
#pragma once

#include "relay/base/span.h"

#include <stdbool.h>
#include <stdint.h>

enum payload_kind {
    PAYLOAD_JSON, /* json or jsonb as text: valid JSON, may be spliced into a larger document */
    PAYLOAD_TEXT, /* text in the database's encoding */
    PAYLOAD_BYTES /* bytea */
};

/* No time is known: the table has no such column, or it is null or infinite there. Every other number is a time. */
#define EVENT_NO_TIME INT64_MIN

/* No event has this id. */
#define EVENT_NO_ID INT64_MIN

/* One outbox row. Immutable once claimed; its bytes live in its batch's arena. */
struct event {
    int64_t id;           /* the order column; also the idempotency key that sinks send */
    struct span event_id; /* the table's own uuid as text, or absent */
    struct span key;      /* ordering key as text; absent = no order wanted */
    struct span type;     /* or absent */
    struct span payload;  /* byte for byte; absent = SQL NULL (a tombstone) */
    enum payload_kind payload_kind;
    struct span headers;            /* a JSON object as text, or absent */
    enum payload_kind headers_kind; /* PAYLOAD_TEXT: nobody has checked that it is JSON */
    struct span traceparent;        /* or absent */
    int64_t created_at_us;          /* wall clock, microseconds since 1970 UTC, or EVENT_NO_TIME */
    uint64_t tid;                   /* the row's ctid when it was read: block << 16 | number; 0: not known */
    int64_t oversize_bytes;         /* size of a payload that is larger than may be sent and was not read; else 0 */
    unsigned attempt;               /* this delivery's number, counted from 1 */
    bool overtaken;                 /* it had to wait for its time, and later ones of its key did not */
    struct span *columns;           /* values of extra columns that the destination template names */
};
