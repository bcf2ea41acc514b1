#include "ordering/event_row.h"

#include "ordering/result.h"

#include <endian.h>

#define EPOCH_2000_US (INT64_C(946684800) * SECOND_US)

enum event_column {
    EVENT_ATTEMPTS,
    EVENT_HEAD,
    EVENT_ENDED_WAIT,
    EVENT_ID,
    EVENT_CREATED_AT,
    EVENT_OVERSIZE,
    EVENT_KEY,
    EVENT_TYPE,
    EVENT_PAYLOAD,
    EVENT_HEADERS,
    EVENT_EVENT_ID,
    EVENT_TRACEPARENT,
    EVENT_TID,
    EVENT_EXTRA
};

#define EXTRA_MAX 64
#define ATTEMPTS_PAUSED (-1)

/* What waits for another event is looked at again by then, whether or not somebody has seen that one end. */
#define AFTER_MAX_US (3600 * SECOND_US)

/* May it be delivered? If not, when, or after which event. */
static bool is_due(const struct ordering_options *options, const PGresult *res, int row, int64_t *ret_delay_us,
                   int64_t *ret_after_id)
{
    int column = EVENT_EXTRA + (int)options->extra_columns;
    *ret_after_id = EVENT_NO_ID;
    if (options->delays && result_bigint(res, row, column++, ret_delay_us))
        return false;
    *ret_delay_us = AFTER_MAX_US;
    column += options->passes;
    return !options->after || !result_bigint(res, row, column, ret_after_id);
}

/* 0 where it is null. */
static int32_t attempts_of(const PGresult *res, int row)
{
    uint32_t attempts = 0;
    if (PQgetlength(res, row, EVENT_ATTEMPTS) == sizeof attempts)
        memcpy(&attempts, PQgetvalue(res, row, EVENT_ATTEMPTS), sizeof attempts);
    return (int32_t)be32toh(attempts);
}

/* As tidsend() writes it: 32 bits and 16. */
static uint64_t tid_of(const PGresult *res, int row)
{
    uint64_t big = 0;
    if (PQgetlength(res, row, EVENT_TID) == 6)
        memcpy(&big, PQgetvalue(res, row, EVENT_TID), 6);
    return be64toh(big) >> 16;
}

/* The last column, where rows that cannot be read have been named. */
static bool is_unreadable(const struct ordering_options *options, const PGresult *res, int row)
{
    int column = EVENT_EXTRA + (int)options->extra_columns + options->delays + options->passes + options->after;
    int64_t yes = 0;
    return column < PQnfields(res) && result_bigint(res, row, column, &yes) && yes;
}

bool event_row_check(const struct ordering_options *options, struct error *err)
{
    return options->extra_columns <= EXTRA_MAX ||
           error_set(err, ERROR_INTERNAL, "a claim of %d columns besides the event's own: at most %d can be read",
                     (int)options->extra_columns, EXTRA_MAX);
}

bool event_row_read(const struct ordering_options *options, const PGresult *res, int row,
                    const struct claim_intake *intake, struct error *err)
{
    struct span extra[EXTRA_MAX];
    struct event event = {.payload_kind = options->payload_kind,
                          .headers_kind = options->headers_kind,
                          .attempt = 1,
                          .created_at_us = EVENT_NO_TIME,
                          .columns = extra};
    int64_t head = 0;
    bool waited = result_bigint(res, row, EVENT_HEAD, &head);
    int32_t attempts = attempts_of(res, row);
    if (attempts == ATTEMPTS_PAUSED) {
        intake->paused(intake->to);
        return true;
    }
    if (waited && PQgetisnull(res, row, EVENT_ID)) {
        intake->ended_wait(intake->to, result_span(res, row, EVENT_ENDED_WAIT), head);
        return true;
    }
    if (!result_bigint(res, row, EVENT_ID, &event.id))
        return error_set(err, ERROR_INTERNAL, "a claim returned an event without an id");
    if (result_bigint(res, row, EVENT_CREATED_AT, &event.created_at_us) &&
        (event.created_at_us == INT64_MIN ||
         __builtin_add_overflow(event.created_at_us, EPOCH_2000_US, &event.created_at_us)))
        event.created_at_us = EVENT_NO_TIME; /* infinity, or a year that does not fit (PostgreSQL's go to 294276) */
    event.key = result_span(res, row, EVENT_KEY);
    if (is_unreadable(options, res, row)) {
        unsigned failures = waited && head == event.id ? (unsigned)attempts : 0;
        intake->unreadable(intake->to, event.key, event.id, failures);
        return true;
    }
    int64_t delay_us, after_id;
    if (!is_due(options, res, row, &delay_us, &after_id)) {
        intake->delayed(intake->to, event.key, event.id, delay_us, after_id);
        return true;
    }
    event.type = result_span(res, row, EVENT_TYPE);
    event.payload = result_span(res, row, EVENT_PAYLOAD);
    event.headers = result_span(res, row, EVENT_HEADERS);
    event.event_id = result_span(res, row, EVENT_EVENT_ID);
    event.traceparent = result_span(res, row, EVENT_TRACEPARENT);
    event.tid = tid_of(res, row);
    result_bigint(res, row, EVENT_OVERSIZE, &event.oversize_bytes);
    int64_t any;
    event.overtaken = options->passes && result_bigint(res, row, EVENT_EXTRA + (int)options->extra_columns, &any);
    for (size_t i = 0; i < options->extra_columns; i++)
        extra[i] = result_span(res, row, EVENT_EXTRA + (int)i);
    if (waited && head == event.id)
        event.attempt = (unsigned)attempts + 1;
    return intake->event(intake->to, &event, waited, err);
}
