/* One POST an event, many at a time, through libcurl's multi interface.
 *
 * DESIGN. http_settings.c says what can be set, http_url.c where to, http_headers.c with what header,
 * http_signature.c signs, http_request.c carries one event on a reused handle, http_reuse.c says which connections are
 * fit to carry it, http_verdict.c reads the outcome, http_loop.c joins libcurl to poll(2), http_time.c says when one
 * has taken too long, http_window.c how many are worth having in flight. What is here is the sink contract: which
 * requests exist, and the events that cannot become one. */
#include "relay/base/fault_point.h"
#include "sinks/http/http_headers.h"
#include "sinks/http/http_loop.h"
#include "sinks/http/http_request.h"
#include "sinks/http/http_reuse.h"
#include "sinks/http/http_settings.h"
#include "sinks/http/http_signature.h"
#include "sinks/http/http_time.h"
#include "sinks/http/http_window.h"
#include "sinks/sink.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct http {
    struct sink sink;
    const struct http_settings *settings;
    struct http_url url;
    struct http_signer *signer; /* NULL: nothing is signed */
    struct http_headers *headers;
    struct http_reuse *reuse;
    struct http_loop *loop;
    struct http_request **requests; /* all, made as needed, `connections` at most */
    size_t request_count, request_max;
    struct http_request *idle;
    struct http_time time;
    struct http_window window; /* of requests in flight */
    struct delivery *unsent;   /* failed in submit(); their verdict is in sink_data */
    CURL *probe;               /* NULL: none under way */
    enum reach reach;          /* what the last probe found, until somebody asks */
    struct error unreached;    /* why, when that is REACH_NO */
};

/* A verdict that submit() found and must not give. */
struct verdict_later {
    enum verdict verdict;
    struct error cause;
};

/* The one place where this sink looks at the wall clock: the receiver wants to know when an attempt was made, and a
 * Retry-After may name a date. Nothing is timed by it. */
static int64_t wall_s(void)
{
    return clock_wall_us() / SECOND_US;
}

static void http_free(struct http *http)
{
    for (size_t i = 0; i < http->request_count; i++)
        http_request_free(http->requests[i]);
    http_loop_close(http->loop);
    http_reuse_free(http->reuse);
    http_headers_close(http->headers);
    http_signer_close(http->signer);
    http_url_done(&http->url);
    free(http->requests);
    free(http);
    curl_global_cleanup();
}

/* NULL when all are busy or memory is short. */
static struct http_request *request_take(struct http *http)
{
    struct http_request *request = http->idle;
    if (request) {
        http->idle = request->next;
        return request;
    }
    if (http->request_count == http->request_max)
        return NULL;
    request = http_request_new(http->settings, &http->url, http->reuse);
    if (request)
        http->requests[http->request_count++] = request;
    return request;
}

static void request_give_back(struct http *http, struct http_request *request)
{
    request->d = NULL;
    request->next = http->idle;
    http->idle = request;
}

static bool http_start(struct http *http, struct error *err)
{
    const struct http_settings *settings = http->settings;
    if (!http_url_init(&http->url, settings->url, err))
        return false;
    if (settings->bearer_token && http->url.user)
        return error_set(err, ERROR_CONFIG, "bearer_token: the url has a user already; remove one of them");
    if (settings->connect_timeout_us > settings->timeout_us)
        return error_set(err, ERROR_CONFIG, "connect_timeout: longer than timeout, which includes it");
    if (settings->ca_file && access(settings->ca_file, R_OK) != 0)
        return error_set(err, ERROR_CONFIG, "ca_file: %s: %s", settings->ca_file, strerror(errno));
    if (!http_settings_check_pins(settings, http->url.https, err))
        return false;
    if (settings->secrets.count > 0 && !(http->signer = http_signer_open(&settings->secrets, err)))
        return false;
    http->headers =
        http_headers_open(&settings->headers, settings->bearer_token, settings->content_type, http->signer, err);
    if (!http->headers)
        return false;
    http->reuse = http_reuse_new();
    http->loop = http_loop_open((long)settings->connections);
    /* The first request is made here, so that a libcurl which lacks something says so at the start. */
    struct http_request *first = http->loop ? request_take(http) : NULL;
    if (!first)
        return error_set(err, ERROR_CONFIG, "libcurl %s lacks memory or a feature; 7.88 with TLS is needed",
                         curl_version_info(CURLVERSION_NOW)->version);
    request_give_back(http, first);
    return true;
}

static struct sink *http_open(const char *name, const void *settings, struct error *err)
{
    (void)name;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
        error_set(err, ERROR_RESOURCE, "libcurl does not start");
        return NULL;
    }
    struct http *http = memory_new(sizeof *http);
    http->settings = settings;
    http->request_max = (size_t)http->settings->connections;
    http->requests = memory_array(http->request_max, sizeof(struct http_request *));
    http_time_init(&http->time);
    http_window_init(&http->window, http->request_max);
    http->sink.in_flight_max = http->window.limit;
    if (http_start(http, err))
        return &http->sink;
    http_free(http);
    return NULL;
}

static void fail_later(struct http *http, struct delivery *d, enum verdict verdict, const struct error *cause)
{
    struct verdict_later *later = arena_alloc(d->arena, sizeof *later);
    *later = (struct verdict_later){verdict, *cause};
    d->sink_data = later;
    d->next = http->unsent;
    http->unsent = d;
}

static size_t http_submit(struct sink *sink, struct delivery *const ds[], size_t n, instant_us now)
{
    struct http *http = (struct http *)sink;
    int64_t attempt_s = wall_s();
    for (size_t i = 0; i < n; i++) {
        struct http_request *request = request_take(http);
        if (!request)
            return i;
        struct delivery *d = ds[i];
        struct error err;
        const char *target = http_url_join(&http->url, d->destination, d->arena, &err);
        struct curl_slist *headers = target ? http_headers_build(http->headers, d, attempt_s, &err) : NULL;
        if (headers)
            http_request_start(request, d, target, headers);
        http_url_forget(&http->url, target);
        if (!headers) {
            request_give_back(http, request);
            fail_later(http, d, err.kind == ERROR_REFUSED ? VERDICT_REJECTED : VERDICT_RETRY, &err);
            continue;
        }
        request->up_us = http_time_begin(&http->time, request->timeout_us, now);
        if (!FAULT_ERROR("http.start") && http_loop_add(http->loop, request->easy, now))
            continue;
        request_give_back(http, request);
        error_set(&err, ERROR_UNREACHABLE, "POST %s: libcurl does not start the request", http->url.base);
        fail_later(http, d, VERDICT_RETRY, &err);
    }
    return n;
}

static void http_prepare(struct sink *sink, struct pollset *ps)
{
    struct http *http = (struct http *)sink;
    if (http->unsent)
        pollset_deadline(ps, 0);
    http_loop_prepare(http->loop, ps);
    pollset_deadline(ps, http_time_wait(&http->time));
    pollset_deadline(ps, http_window_wait(&http->window, sink->in_flight));
}

static void resolve_unsent(struct http *http)
{
    for (struct delivery *d = http->unsent, *next; d; d = next) {
        next = d->next;
        const struct verdict_later *later = d->sink_data;
        delivery_resolve(d, later->verdict, &later->cause);
    }
    http->unsent = NULL;
}

static void probe_end(struct http *http, enum reach reach)
{
    curl_easy_cleanup(http->probe);
    http->probe = NULL;
    http->reach = reach;
}

static void probe_answered(struct http *http, CURLcode code)
{
    if (code != CURLE_OK) {
        struct http_outcome outcome = http_verdict_transfer(code, false);
        error_set(&http->unreached, outcome.kind, "%s: %s (%s)", http->url.base, outcome.reason,
                  curl_easy_strerror(code));
    }
    probe_end(http, code == CURLE_OK ? REACH_YES : REACH_NO);
}

/* True when it is under way once more. */
static bool start_again(struct http *http, struct http_request *request, instant_us now)
{
    return http_request_again(request) && http_loop_add(http->loop, request->easy, now);
}

static void take_answers(struct http *http, instant_us now)
{
    CURLcode code;
    CURL *easy;
    while ((easy = http_loop_next(http->loop, &code))) {
        if (easy == http->probe) {
            probe_answered(http, code);
            continue;
        }
        void *request = NULL;
        curl_easy_getinfo(easy, CURLINFO_PRIVATE, &request);
        if (start_again(http, request, now))
            continue;
        if (FAULT_ERROR("http.answer"))
            code = CURLE_RECV_ERROR;
        http_request_finish(request, code, &http->url, wall_s());
        request_give_back(http, request);
    }
}

static void end_overdue(struct http *http)
{
    if (!http_time_is_due(&http->time))
        return;
    for (size_t i = 0; i < http->request_count; i++) {
        struct http_request *request = http->requests[i];
        if (!request->d || !http_time_is_up(&http->time, request->up_us))
            continue;
        http_loop_remove(http->loop, request->easy);
        http_request_time_out(request, &http->url, wall_s());
        request_give_back(http, request);
    }
}

static void http_progress(struct sink *sink, const struct pollset *ps, instant_us now)
{
    struct http *http = (struct http *)sink;
    resolve_unsent(http);
    FAULT_POINT("http.progress");
    http_time_turn(&http->time, now);
    http_loop_progress(http->loop, ps, now);
    size_t before = sink->in_flight;
    take_answers(http, now);
    end_overdue(http);
    http_window_turn(&http->window, before - sink->in_flight, pollset_waited_us(ps), now);
    sink->in_flight_max = http->window.limit;
}

static enum reach http_probe(struct sink *sink, struct span destination, instant_us now, struct error *err)
{
    (void)destination; /* all are on the same host */
    struct http *http = (struct http *)sink;
    enum reach reach = http->reach;
    http->reach = REACH_PENDING;
    if (reach == REACH_NO)
        *err = http->unreached;
    if (reach != REACH_PENDING || http->probe)
        return reach;
    error_set(err, ERROR_RESOURCE, "%s: libcurl cannot make a connection", http->url.base);
    http->probe = curl_easy_init();
    if (!http->probe)
        return REACH_NO;
    /* A connection of its own, TLS included, and nothing is sent over it. */
    bool ok = http_handle_init(http->probe, http->settings, &http->url) &&
              curl_easy_setopt(http->probe, CURLOPT_CONNECT_ONLY, 1L) == CURLE_OK &&
              curl_easy_setopt(http->probe, CURLOPT_FRESH_CONNECT, 1L) == CURLE_OK &&
              curl_easy_setopt(http->probe, CURLOPT_FORBID_REUSE, 1L) == CURLE_OK &&
              http_loop_add(http->loop, http->probe, now);
    if (ok)
        return REACH_PENDING;
    probe_end(http, REACH_PENDING);
    return REACH_NO;
}

static void http_cancel(struct sink *sink, struct delivery *d)
{
    const struct http *http = (const struct http *)sink;
    for (size_t i = 0; i < http->request_count; i++)
        if (http->requests[i]->d == d)
            http->requests[i]->cancelled = true;
}

static void http_close(struct sink *sink)
{
    struct http *http = (struct http *)sink;
    resolve_unsent(http);
    if (http->probe) {
        http_loop_remove(http->loop, http->probe);
        probe_end(http, REACH_NO);
    }
    for (size_t i = 0; i < http->request_count; i++) {
        struct http_request *request = http->requests[i];
        if (!request->d)
            continue;
        http_loop_remove(http->loop, request->easy);
        delivery_fail(request->d, VERDICT_UNKNOWN, ERROR_UNREACHABLE, "POST %s: closed before the answer",
                      http->url.base);
    }
    http_free(http);
}

const struct sink_type sink_http = {
    .name = "http",
    .help = "one POST request an event",
    .settings = http_setting_rows,
    .settings_size = sizeof(struct http_settings),
    .response_max = http_settings_response_max,
    .open = http_open,
    .submit = http_submit,
    .prepare = http_prepare,
    .progress = http_progress,
    .close = http_close,
    .probe = http_probe,
    .cancel = http_cancel,
    .exposed = http_settings_exposed,
};
