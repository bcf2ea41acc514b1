/* sinks/http/http_reuse.h -- whether a connection that was kept can carry one more request.
 *
 *   http_reuse_new -> http_reuse_watch of each handle -> http_reuse_has_leftover* -> http_reuse_free
 *
 * HTTP/1.1 tells answers from each other by their order alone. What a receiver has sent beyond its last answer would be
 * taken for the answer to the next request. libcurl looks for such bytes since 8.0, and does not see those that OpenSSL
 * has decrypted already; so this looks before each request, at the socket and at OpenSSL's buffer. */
#pragma once

#include "relay/base/arena.h"

#include <curl/curl.h>

struct http_reuse;

/* The two ends of a connection, as libcurl tells them to a CURLOPT_PREREQFUNCTION. */
struct http_ends {
    const char *local_ip, *remote_ip;
    int local_port;
};

struct http_reuse *http_reuse_new(void);
void http_reuse_free(struct http_reuse *reuse); /* after libcurl has closed all its connections; NULL is a no-op */

/* Tells `reuse` of the connections that `easy` will make. False when libcurl refuses. */
bool http_reuse_watch(struct http_reuse *reuse, CURL *easy) MUST_CHECK;

/* Within the CURLOPT_PREREQFUNCTION of `easy`: HTTP/2 is spoken, where an answer names its request. */
bool http_reuse_is_multiplexed(CURL *easy);

/* There as well: true when something has come that is no answer to this request, or the other side has ended the
 * connection, or nobody knows. Reads nothing. */
bool http_reuse_has_leftover(struct http_reuse *reuse, CURL *easy, const struct http_ends *ends);
