#include "sinks/http/http_verdict.h"

#include "relay/base/clock.h"

/* The first row that holds the status decides. A gateway that gave up on its upstream (502, 504, 520, 524) cannot say
 * whether the event arrived there, so that is UNKNOWN. 403 is ours to share: bad credentials refuse every event, a
 * firewall that dislikes one payload refuses one; ERROR_OVERLOADED lets the engine tell them apart by what else gets
 * through. */
static const struct status_rule {
    int first, last;
    bool path; /* REJECTED instead, when the path came from the event */
    struct http_outcome outcome;
} status_rules[] = {
    {100, 199, false, {VERDICT_UNKNOWN, ERROR_ROUTE, "not a final answer: is this an HTTP API?"}},
    {200, 299, false, {VERDICT_ACKED, ERROR_NONE, "accepted"}},
    {300, 399, false, {VERDICT_RETRY, ERROR_ROUTE, "redirects are not followed: set `url` to the final address"}},
    {401, 401, false, {VERDICT_RETRY, ERROR_ROUTE, "credentials missing or refused: check bearer_token or headers"}},
    {403, 403, false, {VERDICT_RETRY, ERROR_OVERLOADED, "forbidden: check the credentials and the receiver's filters"}},
    {404, 404, true, {VERDICT_RETRY, ERROR_ROUTE, "no such path: check `url` and `destination`"}},
    {405, 405, true, {VERDICT_RETRY, ERROR_ROUTE, "the path does not take POST: check `url` and `destination`"}},
    {407, 407, false, {VERDICT_RETRY, ERROR_ROUTE, "the proxy wants credentials: put them into `proxy`"}},
    {408, 408, false, {VERDICT_RETRY, ERROR_OVERLOADED, "the receiver gave up waiting for the request"}},
    {409, 409, false, {VERDICT_RETRY, ERROR_REFUSED, "conflict"}},
    {410, 410, true, {VERDICT_RETRY, ERROR_ROUTE, "gone for good: check `url` and `destination`"}},
    {421, 421, false, {VERDICT_RETRY, ERROR_ROUTE, "the server is not responsible for this host: check `url`"}},
    {423, 423, false, {VERDICT_RETRY, ERROR_REFUSED, "locked"}},
    {425, 425, false, {VERDICT_RETRY, ERROR_OVERLOADED, "too early"}},
    {426, 426, false, {VERDICT_RETRY, ERROR_ROUTE, "another protocol wanted: check `url` and http_version"}},
    {429, 429, false, {VERDICT_RETRY, ERROR_OVERLOADED, "too many requests"}},
    {400, 499, false, {VERDICT_REJECTED, ERROR_REFUSED, "the receiver refuses this event"}},
    {502, 502, false, {VERDICT_UNKNOWN, ERROR_OVERLOADED, "bad gateway"}},
    {503, 503, false, {VERDICT_RETRY, ERROR_OVERLOADED, "unavailable"}},
    {504, 504, false, {VERDICT_UNKNOWN, ERROR_OVERLOADED, "gateway timeout"}},
    {507, 507, false, {VERDICT_RETRY, ERROR_OVERLOADED, "insufficient storage"}},
    {511, 511, false, {VERDICT_RETRY, ERROR_ROUTE, "the network wants a login"}},
    {520, 520, false, {VERDICT_UNKNOWN, ERROR_OVERLOADED, "the gateway did not understand the origin"}},
    {521, 523, false, {VERDICT_RETRY, ERROR_OVERLOADED, "the gateway does not reach the origin"}},
    {524, 524, false, {VERDICT_UNKNOWN, ERROR_OVERLOADED, "the gateway gave up waiting for the origin"}},
    {529, 529, false, {VERDICT_RETRY, ERROR_OVERLOADED, "overloaded"}},
    {500, 599, false, {VERDICT_RETRY, ERROR_REFUSED, "the receiver failed on this event"}},
};

struct http_outcome http_verdict_status(long status, bool path_from_event)
{
    for (size_t i = 0; i < sizeof status_rules / sizeof status_rules[0]; i++) {
        const struct status_rule *rule = &status_rules[i];
        if (status < rule->first || status > rule->last)
            continue;
        if (rule->path && path_from_event)
            return (struct http_outcome){VERDICT_REJECTED, ERROR_REFUSED,
                                         "no such path: check what `destination` makes of the event"};
        return rule->outcome;
    }
    return (struct http_outcome){VERDICT_UNKNOWN, ERROR_ROUTE, "not an HTTP status: is this an HTTP API?"};
}

/* What kept the request from leaving. Anything not listed: nobody there. */
static const struct {
    CURLcode code;
    enum error_kind kind;
    const char *reason;
} unsent_rules[] = {
    /* clang-format off */
    {CURLE_PEER_FAILED_VERIFICATION, ERROR_ROUTE,       "the certificate is not trusted: set ca_file or mend the server"},
    {CURLE_SSL_CACERT_BADFILE,       ERROR_ROUTE,       "ca_file cannot be read"},
    {CURLE_SSL_ISSUER_ERROR,         ERROR_ROUTE,       "the certificate is not trusted"},
    {CURLE_SSL_INVALIDCERTSTATUS,    ERROR_ROUTE,       "the certificate is not trusted"},
    {CURLE_SSL_PINNEDPUBKEYNOTMATCH, ERROR_ROUTE,       "the server's key is not that of pinned_public_key"},
    {CURLE_URL_MALFORMAT,            ERROR_ROUTE,       "the URL cannot be used"},
    {CURLE_UNSUPPORTED_PROTOCOL,     ERROR_ROUTE,       "the URL's scheme cannot be used"},
    {CURLE_COULDNT_RESOLVE_HOST,     ERROR_UNREACHABLE, "no such host"},
    {CURLE_COULDNT_RESOLVE_PROXY,    ERROR_UNREACHABLE, "no such proxy"},
    {CURLE_SSL_CONNECT_ERROR,        ERROR_UNREACHABLE, "no TLS connection"},
    {CURLE_OPERATION_TIMEDOUT,       ERROR_UNREACHABLE, "no connection in time"},
    {CURLE_ABORTED_BY_CALLBACK,      ERROR_LOST_CLAIM,  "the claim was lost before it was sent"},
    /* clang-format on */
};

/* Sent, and then no whole answer. Anything not listed: the connection broke. */
static const struct {
    CURLcode code;
    enum error_kind kind;
    const char *reason;
} sent_rules[] = {
    /* clang-format off */
    {CURLE_OPERATION_TIMEDOUT,   ERROR_TIMEOUT,    "no answer in time"},
    /* Bytes that are not HTTP. One event may bring a receiver to say such things; a wrong port says it to all. */
    {CURLE_WEIRD_SERVER_REPLY,   ERROR_OVERLOADED, "the answer is not HTTP"},
    {CURLE_UNSUPPORTED_PROTOCOL, ERROR_OVERLOADED, "the answer is not HTTP"},
    {CURLE_WRITE_ERROR,          ERROR_OVERLOADED, "the answer's header is not HTTP's, or too large"},
    /* clang-format on */
};

struct http_outcome http_verdict_transfer(CURLcode code, bool sent)
{
    if (!sent) {
        for (size_t i = 0; i < sizeof unsent_rules / sizeof unsent_rules[0]; i++)
            if (unsent_rules[i].code == code)
                return (struct http_outcome){VERDICT_RETRY, unsent_rules[i].kind, unsent_rules[i].reason};
        return (struct http_outcome){VERDICT_RETRY, ERROR_UNREACHABLE, "no connection"};
    }
    for (size_t i = 0; i < sizeof sent_rules / sizeof sent_rules[0]; i++)
        if (sent_rules[i].code == code)
            return (struct http_outcome){VERDICT_UNKNOWN, sent_rules[i].kind, sent_rules[i].reason};
    return (struct http_outcome){VERDICT_UNKNOWN, ERROR_UNREACHABLE,
                                 "the connection broke before the answer was whole"};
}

struct http_outcome http_verdict_early(void)
{
    return (struct http_outcome){VERDICT_UNKNOWN, ERROR_OVERLOADED,
                                 "it was answered before all of it was sent, as if by a second answer to an earlier "
                                 "request: let the receiver answer once, and after it has read the whole request"};
}

static struct span trim(struct span text)
{
    while (text.size && strchr(" \t\r\n", text.data[text.size - 1]))
        text.size--;
    while (text.size && strchr(" \t", text.data[0]))
        text.data++, text.size--;
    return text;
}

int64_t http_retry_after_us(struct span value, int64_t wall_s)
{
    char text[64]; /* the longest date is 33 bytes */
    value = trim(value);
    if (value.size == 0 || value.size >= sizeof text || memchr(value.data, '\0', value.size))
        return 0;
    memcpy(text, value.data, value.size);
    text[value.size] = '\0';
    int64_t wait_s = 0, most_s = HTTP_RETRY_AFTER_MAX_US / SECOND_US;
    if (strspn(text, "0123456789") == value.size) {
        for (const char *c = text; *c && wait_s <= most_s; c++)
            wait_s = wait_s * 10 + (*c - '0');
    } else {
        time_t then = curl_getdate(text, NULL);
        wait_s = then < 0 || then < wall_s ? 0 : (int64_t)then - wall_s;
    }
    return (wait_s < most_s ? wait_s : most_s) * SECOND_US;
}
