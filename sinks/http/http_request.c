#include "sinks/http/http_request.h"

#include "relay/base/clock.h"
#include "relay/base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Of one answer, all interim answers included. */
#define HEADER_BYTES_MAX 65536

/* Connections are renewed now and then, so that a changed address is noticed under steady load. */
#define CONNECTION_LIFETIME_S 600L

/* ---- callbacks ---- */

/* The connection stands, TLS is up, and the request is about to be written: from here on it may have arrived. Asking
 * afterwards how much was sent would also work, but libcurl resets those counters when it sends again on a new
 * connection because a kept-alive one turned out dead. Before that it asks here again. */
static int on_prerequest(void *data, char *remote_ip, char *local_ip, int remote_port, int local_port)
{
    (void)remote_port;
    struct http_request *request = data;
    if (request->cancelled)
        return CURL_PREREQFUNC_ABORT;
    long made = 0;
    curl_easy_getinfo(request->easy, CURLINFO_NUM_CONNECTS, &made);
    request->reused = made == 0 && !http_reuse_is_multiplexed(request->easy);
    const struct http_ends ends = {.local_ip = local_ip, .remote_ip = remote_ip, .local_port = local_port};
    request->stale = request->reused && http_reuse_has_leftover(request->reuse, request->easy, &ends);
    if (request->stale)
        return CURL_PREREQFUNC_ABORT; /* libcurl closes the connection */
    request->sent = true;
    return CURL_PREREQFUNC_OK;
}

static void keep_retry_after(struct http_request *request, struct span line)
{
    static const char name[] = "retry-after:";
    if (line.size < sizeof name - 1 || strncasecmp(line.data, name, sizeof name - 1) != 0)
        return;
    size_t size = line.size - (sizeof name - 1);
    if (size >= sizeof request->retry_after)
        return;
    memcpy(request->retry_after, line.data + sizeof name - 1, size);
    request->retry_after[size] = '\0';
}

/* `shape`, where 9 is any digit, and then the end of a word. */
static bool has_shape(struct span text, const char *shape)
{
    size_t size = strlen(shape);
    for (size_t i = 0; i < size; i++)
        if (i >= text.size || (shape[i] == '9' ? text.data[i] < '0' || text.data[i] > '9' : text.data[i] != shape[i]))
            return false;
    char after = size < text.size ? text.data[size] : '\n';
    return after == ' ' || after == '\r' || after == '\n';
}

/* libcurl 7.88 takes a line of "http/" and nonsense for status 200, and 0210 for 210: acks that nobody gave. */
static bool is_status_line(struct span line)
{
    return has_shape(line, "HTTP/9.9 999") || has_shape(line, "HTTP/9 999");
}

/* What comes over a kept connection before all of the request is written may be one more answer to an earlier request.
 * A refusal is believed all the same, as it loses nothing. */
static bool may_be_anothers(const struct http_request *request, struct span line)
{
    const char *space = memchr(line.data, ' ', line.size);
    curl_off_t written = 0;
    if (!request->reused || !space || space[1] != '2')
        return false;
    curl_easy_getinfo(request->easy, CURLINFO_SIZE_UPLOAD_T, &written);
    return written < (curl_off_t)request->d->event->payload.size;
}

static size_t on_header(char *bytes, size_t size, size_t count, void *data)
{
    struct http_request *request = data;
    struct span line = {bytes, size * count};
    request->header_bytes += (int64_t)line.size;
    if (request->header_bytes > HEADER_BYTES_MAX || (request->status_due && !is_status_line(line)))
        return CURL_WRITEFUNC_ERROR;
    request->early = request->status_due && may_be_anothers(request, line);
    if (request->early)
        return CURL_WRITEFUNC_ERROR;
    request->status_due = false;
    /* The end of a header is whatever libcurl takes for it. */
    bool blank = line.size > 0 && (line.data[0] == '\r' || line.data[0] == '\n');
    if (!blank) {
        keep_retry_after(request, line);
        return line.size;
    }
    long status = 0;
    curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &status);
    request->answered = status >= 200;
    request->status_due = status < 200;
    return line.size;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *data)
{
    struct http_request *request = data;
    size_t total = size * count, used = strlen(request->excerpt);
    for (size_t i = 0; i < total && used < request->excerpt_max; i++)
        /* Printable ASCII only: it ends in a log line and in a text column. */
        request->excerpt[used++] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : (bytes[i] & 0x80 ? '?' : ' ');
    request->excerpt[used] = '\0';
    if (request->d->response)
        response_add(request->d->response, (struct span){bytes, total});
    request->body_bytes += (int64_t)total;
    if (request->body_bytes <= request->max_response)
        return total;
    request->capped = true;
    return CURL_WRITEFUNC_ERROR;
}

/* ---- options ---- */

static bool set_transport(CURL *easy, const struct http_settings *settings, const struct http_url *url)
{
    CURLcode bad = CURLE_OK;
    /* Nothing but what the configuration says: no other scheme, no redirect, no .netrc, no proxy of the environment. */
    bad |= curl_easy_setopt(easy, CURLOPT_URL, url->base_with_query);
    bad |= curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, url->https ? "https" : "http");
    bad |= curl_easy_setopt(easy, CURLOPT_REDIR_PROTOCOLS_STR, "https");
    bad |= curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
    bad |= curl_easy_setopt(easy, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    bad |= curl_easy_setopt(easy, CURLOPT_PROXY, settings->proxy ? settings->proxy : "");
    bad |= curl_easy_setopt(easy, CURLOPT_NOPROXY, "");
    bad |= curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
    bad |= curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (settings->ca_file) {
        bad |= curl_easy_setopt(easy, CURLOPT_CAINFO, settings->ca_file);
        bad |= curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
    }
    if (settings->pinned_public_key)
        bad |= curl_easy_setopt(easy, CURLOPT_PINNEDPUBLICKEY, settings->pinned_public_key);
    bad |= curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    /* A resolver thread that is still at work does not hold up close(). */
    bad |= curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_MAXLIFETIME_CONN, CONNECTION_LIFETIME_S);
    /* No CURLOPT_TIMEOUT: libcurl looks at it before it reads an answer that is there (http_time.h). What this one ends
     * has not been sent. */
    bad |= curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(settings->connect_timeout_us / MS_US));
    return bad == CURLE_OK;
}

bool http_handle_init(CURL *easy, const struct http_settings *settings, const struct http_url *url)
{
    CURLcode bad = set_transport(easy, settings, url) ? CURLE_OK : CURLE_FAILED_INIT;
    bool two = settings->http_version == HTTP_VERSION_2;
    bad |=
        curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, two ? (long)CURL_HTTP_VERSION_2TLS : (long)CURL_HTTP_VERSION_1_1);
    /* With HTTP/2 wait for the first connection to say whether it carries many requests. */
    bad |= curl_easy_setopt(easy, CURLOPT_PIPEWAIT, two ? 1L : 0L);
    bad |= curl_easy_setopt(easy, CURLOPT_USERAGENT, "pgcourier/" PGCOURIER_VERSION);
    if (url->user || url->password) {
        bad |= curl_easy_setopt(easy, CURLOPT_HTTPAUTH, (long)CURLAUTH_BASIC);
        bad |= curl_easy_setopt(easy, CURLOPT_USERNAME, url->user ? url->user : "");
        bad |= curl_easy_setopt(easy, CURLOPT_PASSWORD, url->password ? url->password : "");
    }
    return bad == CURLE_OK;
}

static bool set_request(struct http_request *request)
{
    CURL *easy = request->easy;
    CURLcode bad = CURLE_OK;
    bad |= curl_easy_setopt(easy, CURLOPT_POST, 1L);
    bad |= curl_easy_setopt(easy, CURLOPT_PRIVATE, request);
    bad |= curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, request->why);
    bad |= curl_easy_setopt(easy, CURLOPT_PREREQFUNCTION, on_prerequest);
    bad |= curl_easy_setopt(easy, CURLOPT_PREREQDATA, request);
    bad |= curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
    bad |= curl_easy_setopt(easy, CURLOPT_HEADERDATA, request);
    bad |= curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    bad |= curl_easy_setopt(easy, CURLOPT_WRITEDATA, request);
    bad |= curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    /* libcurl before 8.1 inflates what comes with `Transfer-Encoding: gzip`, though nobody has asked for that. */
    bad |= curl_easy_setopt(easy, CURLOPT_HTTP_CONTENT_DECODING, 0L);
    /* Answers are short; with hundreds of requests in flight the default buffers add up. */
    bad |= curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, 4096L);
    bad |= curl_easy_setopt(easy, CURLOPT_UPLOAD_BUFFERSIZE, 16384L);
    return bad == CURLE_OK;
}

struct http_request *http_request_new(const struct http_settings *settings, const struct http_url *url,
                                      struct http_reuse *reuse)
{
    CURL *easy = curl_easy_init();
    if (!easy)
        return NULL;
    struct http_request *request = memory_new(sizeof *request);
    request->easy = easy;
    request->reuse = reuse;
    request->timeout_us = settings->timeout_us;
    request->max_response = settings->max_response;
    request->excerpt_max = settings->log_answers ? HTTP_EXCERPT_MAX : 0;
    if (http_handle_init(easy, settings, url) && http_reuse_watch(reuse, easy) && set_request(request))
        return request;
    http_request_free(request);
    return NULL;
}

void http_request_free(struct http_request *request)
{
    if (!request)
        return;
    curl_easy_cleanup(request->easy);
    free(request);
}

/* ---- one delivery ---- */

void http_request_start(struct http_request *request, struct delivery *d, const char *target,
                        struct curl_slist *headers)
{
    request->d = d;
    request->cancelled = request->stale = request->sent = false;
    request->answered = request->early = request->capped = false;
    request->status_due = true;
    request->body_bytes = request->header_bytes = 0;
    request->excerpt[0] = request->retry_after[0] = request->why[0] = '\0';
    struct span payload = d->event->payload;
    curl_easy_setopt(request->easy, CURLOPT_FRESH_CONNECT, 0L);
    curl_easy_setopt(request->easy, CURLOPT_URL, target);
    curl_easy_setopt(request->easy, CURLOPT_HTTPHEADER, headers);
    /* Not NULL when absent: libcurl would ask a read callback for the body. */
    curl_easy_setopt(request->easy, CURLOPT_POSTFIELDS, payload.data ? payload.data : "");
    curl_easy_setopt(request->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)payload.size);
}

bool http_request_again(struct http_request *request)
{
    bool again = request->stale && !request->cancelled;
    request->stale = false;
    curl_easy_setopt(request->easy, CURLOPT_FRESH_CONNECT, again ? 1L : 0L);
    return again;
}

static void fail(struct http_request *request, struct http_outcome outcome, const char *safe_url, long status)
{
    struct delivery *d = request->d;
    struct span path = d->destination;
    const char *slash = path.size && path.data[0] != '/' ? "/" : "";
    int path_size = (int)utf8_fit(path, 120);
    if (!status)
        delivery_fail(d, outcome.verdict, outcome.kind, "POST %s%s%.*s: %s (%s)", safe_url, slash, path_size,
                      path_size ? path.data : "", outcome.reason, request->why[0] ? request->why : "no details");
    else
        delivery_fail(d, outcome.verdict, outcome.kind, "POST %s%s%.*s: HTTP %ld, %s%s%s", safe_url, slash, path_size,
                      path_size ? path.data : "", status, outcome.reason, request->excerpt[0] ? "; it says: " : "",
                      request->excerpt);
}

void http_request_finish(struct http_request *request, CURLcode code, const struct http_url *url, int64_t wall_s)
{
    struct delivery *d = request->d;
    long status = 0;
    curl_easy_getinfo(request->easy, CURLINFO_RESPONSE_CODE, &status);
    struct http_outcome outcome = http_verdict_status(status, d->routed_by_event);
    bool complete = code == CURLE_OK || request->capped;
    /* A refusal is believed as soon as its header is complete. An ack has to be whole: a receiver that dies while it
     * answers may have sent the header before it was done. */
    if (!request->answered || (!complete && outcome.verdict == VERDICT_ACKED)) {
        outcome = request->early ? http_verdict_early() : http_verdict_transfer(code, request->sent);
        status = 0;
    }
    if (outcome.verdict == VERDICT_ACKED) {
        delivery_resolve(d, VERDICT_ACKED, NULL);
    } else {
        d->retry_after_us = http_retry_after_us(span_of(request->retry_after), wall_s);
        fail(request, outcome, url->base, status);
    }
    request->d = NULL;
    curl_easy_setopt(request->easy, CURLOPT_HTTPHEADER, NULL);
    curl_easy_setopt(request->easy, CURLOPT_POSTFIELDS, "");
}

void http_request_time_out(struct http_request *request, const struct http_url *url, int64_t wall_s)
{
    snprintf(request->why, sizeof request->why, "timed out after %" PRId64 " ms with %" PRId64 " bytes received",
             request->timeout_us / MS_US, request->header_bytes + request->body_bytes);
    http_request_finish(request, CURLE_OPERATION_TIMEDOUT, url, wall_s);
}
