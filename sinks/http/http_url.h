/* sinks/http/http_url.h -- where a request goes.
 *
 *   http_url_init -> http_url_join* -> http_url_done
 *
 * Scheme, host, port, user and query come from the configuration only; a destination, which may hold the data of an
 * event, is a path below the configured one and can be nothing else. */
#pragma once

#include "relay/base/arena.h"

#define HTTP_URL_MAX 8192

struct http_url {
    char *base;            /* scheme://host[:port]/path, without userinfo and query: fit to be shown */
    char *query;           /* without '?', or NULL; may be a secret */
    char *base_with_query; /* base?query */
    char *user, *password; /* decoded, or NULL */
    bool https;
};

/* False and *err (ERROR_CONFIG) when `text` is not a URL we can post to; *ret is then untouched. */
bool http_url_init(struct http_url *ret, const char *text, struct error *err) MUST_CHECK;
void http_url_done(struct http_url *url); /* wipes user, password and query */

/* The host of a URL of any scheme, without user and port; an IPv6 address is in brackets. The caller's to free; NULL if
 * libcurl finds none. */
char *http_url_host(const char *text);

/* base/destination?query, each segment of the destination percent-encoded; `base_with_query` when the destination is
 * empty. In the arena. NULL and *err (ERROR_REFUSED) for `.` and `..` segments, control characters and more than
 * HTTP_URL_MAX bytes. */
const char *http_url_join(const struct http_url *url, struct span destination, struct arena *arena,
                          struct error *err) MUST_CHECK;

/* Wipes the query of what http_url_join() has made, which is then of no use any more. NULL is a no-op. */
void http_url_forget(const struct http_url *url, const char *joined);
