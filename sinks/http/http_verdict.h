/* sinks/http/http_verdict.h -- what an answer, or the lack of one, says about the event. Pure functions. */
#pragma once

#include "sinks/delivery.h"

#include <curl/curl.h>

struct http_outcome {
    enum verdict verdict;
    enum error_kind kind; /* ERROR_NONE exactly when ACKED */
    const char *reason;   /* static, for people */
};

/* For any number; `path_from_event` when parts of the event are in the URL's path, so that "no such path" may be the
 * event's doing. */
struct http_outcome http_verdict_status(long status, bool path_from_event);

/* For a transfer without a usable answer. `sent`: a byte of the request may have left. */
struct http_outcome http_verdict_transfer(CURLcode code, bool sent);

/* For an ack over a kept connection that came before all of the request was written: whose answer it is, nobody knows.
 */
struct http_outcome http_verdict_early(void);

#define HTTP_RETRY_AFTER_MAX_US (3600 * INT64_C(1000000))

/* Retry-After as microseconds from `wall_s` (seconds since 1970): a number of seconds or any of HTTP's three date
 * formats. 0 for nonsense and for the past, HTTP_RETRY_AFTER_MAX_US at most. */
int64_t http_retry_after_us(struct span value, int64_t wall_s);
