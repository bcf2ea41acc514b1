/* sinks/http/http_request.h -- one request and what came back, on a libcurl handle that is used again and again.
 *
 *   http_request_new -> (http_request_start -> transfer -> (http_request_again -> transfer)? -> http_request_finish)*
 *   -> http_request_free */
#pragma once

#include "relay/base/setting.h"
#include "sinks/delivery.h"
#include "sinks/http/http_reuse.h"
#include "sinks/http/http_settings.h"
#include "sinks/http/http_url.h"
#include "sinks/http/http_verdict.h"

#define HTTP_EXCERPT_MAX 200

struct http_request {
    CURL *easy;
    struct http_reuse *reuse;
    struct delivery *d;        /* NULL while idle */
    struct http_request *next; /* in the list of idle ones */
    int64_t timeout_us, up_us; /* for all of it; when that time is up, by http_time.h's clock */

    bool cancelled; /* must not be sent, or sent again */

    /* What happened so far. */
    bool reused;     /* the connection has carried others, each after the one before */
    bool stale;      /* nothing was written, as that connection has bytes that are no answer to this request */
    bool sent;       /* a byte of the request may have left */
    bool early;      /* an ack came before all of the request had left */
    bool answered;   /* the header of a final answer is complete */
    bool status_due; /* the next line of the header is a status line */
    bool capped;     /* we stopped reading a body at max_response */
    int64_t max_response, body_bytes, header_bytes;
    size_t excerpt_max;                 /* 0: answers may hold what must not be told */
    char excerpt[HTTP_EXCERPT_MAX + 1]; /* of the body, printable */
    char retry_after[64];
    char why[CURL_ERROR_SIZE];
};

/* What every handle of the sink has in common, also that of the probe: where to, TLS, time limits. False when
 * libcurl refuses an option. */
bool http_handle_init(CURL *easy, const struct http_settings *settings, const struct http_url *url) MUST_CHECK;

/* NULL when libcurl has no memory or refuses an option. All three outlive it. */
struct http_request *http_request_new(const struct http_settings *settings, const struct http_url *url,
                                      struct http_reuse *reuse);
void http_request_free(struct http_request *request); /* not while a multi handle has it */

/* Makes `request` carry `d` to `target` with `headers`; `d` and `headers` are borrowed until finish. The payload is not
 * copied. */
void http_request_start(struct http_request *request, struct delivery *d, const char *target,
                        struct curl_slist *headers);

/* After the transfer: true when nothing was written, because the connection that libcurl had chosen was not fit for it.
 * The handle is then to be added to its loop once more, where it makes a new connection. */
bool http_request_again(struct http_request *request);

/* Gives the delivery its verdict and forgets it. `wall_s` is for a Retry-After that names a date. */
void http_request_finish(struct http_request *request, CURLcode code, const struct http_url *url, int64_t wall_s);

/* The same for one that has been taken out of its loop because its time is up. */
void http_request_time_out(struct http_request *request, const struct http_url *url, int64_t wall_s);
