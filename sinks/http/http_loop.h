/* sinks/http/http_loop.h -- libcurl's multi interface as a guest in the relay's poll loop.
 *
 *   http_loop_open -> (http_loop_add* -> http_loop_prepare -> poll(2) -> http_loop_progress -> http_loop_next*)*
 *   -> http_loop_close */
#pragma once

#include "relay/base/pollset.h"

#include <curl/curl.h>

struct http_loop;

/* At most `connections` transfers are added at a time. NULL when libcurl has no memory. */
struct http_loop *http_loop_open(long connections);
void http_loop_close(struct http_loop *loop); /* after all handles were removed; NULL is a no-op */

/* Starts a transfer; nothing happens before progress. The handle stays the caller's. False: not added. */
bool http_loop_add(struct http_loop *loop, CURL *easy, instant_us now) MUST_CHECK;
void http_loop_remove(struct http_loop *loop, CURL *easy); /* gives a transfer up, wherever it is */

void http_loop_prepare(const struct http_loop *loop, struct pollset *ps);
void http_loop_progress(struct http_loop *loop, const struct pollset *ps, instant_us now);

/* One finished transfer, already removed from the loop; NULL when there is none. */
CURL *http_loop_next(struct http_loop *loop, CURLcode *ret);
