/* sinks/http/http_headers.h -- the header of one request.
 *
 *   http_headers_open -> http_headers_build* -> http_headers_close
 *
 * A header line is where an event's data could become somebody else's request, so everything from an event goes
 * through one encoder: bytes outside printable ASCII, '%', and spaces at the ends become %XX. */
#pragma once

#include "relay/base/setting.h"
#include "sinks/delivery.h"
#include "sinks/http/http_signature.h"

#include <curl/curl.h>

#define HTTP_HEADER_VALUE_MAX 8192   /* bytes of one value, encoded */
#define HTTP_HEADERS_MAX 64          /* entries of an event's headers, besides EVENT_HEADER_REPLAYED */
#define HTTP_HEADERS_TOTAL_MAX 32768 /* bytes of all lines that come from an event */

struct http_headers;

/* What is the same for every request. `content_type` NULL: after the payload's kind. `signer` NULL: requests are not
 * signed. All borrowed, outlive the result. NULL and *err (ERROR_CONFIG) for a name or value that HTTP cannot carry or
 * that is ours to set. */
struct http_headers *http_headers_open(const struct setting_map *extra, const char *bearer_token,
                                       const char *content_type, const struct http_signer *signer, struct error *err);
void http_headers_close(struct http_headers *headers); /* NULL is a no-op */

/* The list for one attempt, made at `wall_s` (seconds since 1970). Parts are in the delivery's arena, the rest is
 * `headers`' own: never freed by the caller. NULL and *err: ERROR_REFUSED when this event cannot be sent, or what
 * http_signer_sign() says. */
struct curl_slist *http_headers_build(const struct http_headers *headers, const struct delivery *d, int64_t wall_s,
                                      struct error *err) MUST_CHECK;
