/* What an answer means and what a request's header holds: every status and every broken transfer has one verdict,
 * Retry-After is bounded, no event adds a line of its own to a request, and a server that says anything at all gets one
 * verdict, which is no ack unless it said 2xx. */
#include "tests/fuzz/fake_server.h"

#include "sinks/http/http_headers.h"
#include "sinks/http/http_verdict.h"
#include "sinks/sink.h"

#include <ctype.h>
#include <strings.h>

#define TURNS 5000

static struct fake_server server;
static char url[64];

static void check_outcome(struct http_outcome outcome)
{
    FUZZ_CHECK(outcome.verdict > VERDICT_NONE && outcome.verdict <= VERDICT_UNKNOWN, "verdict %d", outcome.verdict);
    FUZZ_CHECK((outcome.verdict == VERDICT_ACKED) == (outcome.kind == ERROR_NONE), "kind %d", outcome.kind);
    FUZZ_CHECK(outcome.reason && *outcome.reason, "no reason");
}

static void check_status(long status, bool path_from_event)
{
    struct http_outcome outcome = http_verdict_status(status, path_from_event);
    check_outcome(outcome);
    FUZZ_CHECK((outcome.verdict == VERDICT_ACKED) == (status >= 200 && status <= 299), "HTTP %ld", status);
    if (outcome.verdict == VERDICT_REJECTED) /* for good: only the event's own fault may say so */
        FUZZ_CHECK(status >= 400 && status <= 499 && outcome.kind == ERROR_REFUSED, "HTTP %ld", status);
}

static void check_transfer(CURLcode code, bool sent)
{
    struct http_outcome outcome = http_verdict_transfer(code, sent);
    check_outcome(outcome);
    FUZZ_CHECK(outcome.verdict == (sent ? VERDICT_UNKNOWN : VERDICT_RETRY), "code %d, sent %d", (int)code, sent);
}

static void check_retry_after(struct span value, int64_t wall_s)
{
    int64_t wait_us = http_retry_after_us(value, wall_s);
    FUZZ_CHECK(wait_us >= 0 && wait_us <= HTTP_RETRY_AFTER_MAX_US && wait_us % 1000000 == 0, "%lld us",
               (long long)wait_us);
    int64_t seconds = 0;
    size_t i = 0;
    for (; i < value.size && value.data[i] >= '0' && value.data[i] <= '9'; i++)
        seconds = seconds > 3600 ? 3600 : seconds * 10 + (value.data[i] - '0');
    if (i == value.size && i > 0 && i < 64)
        FUZZ_CHECK(wait_us == (seconds > 3600 ? 3600 : seconds) * 1000000, "%.*s is %lld us", (int)value.size,
                   value.data, (long long)wait_us);
}

/* ---- the header ---- */

static const char *const ours[] = {"webhook-id", "webhook-timestamp", "webhook-signature", "event-id",    "event-key",
                                   "event-type", "event-tombstone",   "traceparent",       "Content-Type"};
static const char *const forbidden[] = {"content-length", "transfer-encoding", "host", "connection", "te", "cookie",
                                        "authorization",  "proxy-connection"};

/* As an application is told of it that gets headers as variables. */
static bool is_taken_for(const char *line, const char *name)
{
    for (; *name; name++, line++)
        if (isalnum((unsigned char)*line) || isalnum((unsigned char)*name)
                ? tolower((unsigned char)*line) != tolower((unsigned char)*name)
                : *line == ':' || *line == ';')
            return false;
    return *line == ':' || *line == ';';
}

static size_t count_lines(const struct curl_slist *list, const char *name)
{
    size_t count = 0;
    for (; list; list = list->next)
        count += is_taken_for(list->data, name);
    return count;
}

static const char *value_of(const struct curl_slist *list, const char *name)
{
    size_t size = strlen(name);
    for (; list; list = list->next)
        if (strncasecmp(list->data, name, size) == 0 && list->data[size] == ':')
            return list->data + size + 2;
    return NULL;
}

static void check_line(const char *line)
{
    size_t name = strspn(line, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    bool empty = line[name] == ';' && line[name + 1] == '\0';
    bool no_expect = strcmp(line, "Expect:") == 0;
    FUZZ_CHECK(name > 0 && (empty || no_expect || strncmp(line + name, ": ", 2) == 0), "\"%s\"", line);
    for (const char *c = line; *c; c++)
        FUZZ_CHECK(*c >= ' ' && *c <= '~', "byte 0x%02x in \"%s\"", (unsigned char)*c, line);
}

/* A value, decoded again, is the event's. */
static void check_value(const struct curl_slist *list, const char *name, struct span wanted)
{
    const char *value = value_of(list, name);
    if (!wanted.data || wanted.size == 0) {
        FUZZ_CHECK(!value, "%s is %s", name, value);
        return;
    }
    FUZZ_CHECK(value, "no %s", name);
    int size = 0;
    char *decoded = curl_easy_unescape(NULL, value, (int)strlen(value), &size);
    FUZZ_CHECK(span_equal((struct span){decoded, (size_t)size}, wanted), "%s: %s", name, value);
    curl_free(decoded);
}

static void check_list(const struct curl_slist *list, const struct event *event)
{
    size_t bytes = 0;
    for (const struct curl_slist *line = list; line; line = line->next) {
        check_line(line->data);
        bytes += strlen(line->data);
    }
    FUZZ_CHECK(bytes / 2 < HTTP_HEADERS_TOTAL_MAX, "%zu bytes", bytes);
    for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++)
        FUZZ_CHECK(count_lines(list, forbidden[i]) == 0, "an event's %s", forbidden[i]);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0] - 2; i++)
        FUZZ_CHECK(count_lines(list, ours[i]) <= 1, "%s twice", ours[i]);
    FUZZ_CHECK(count_lines(list, "X-Fixed") == 1 && strcmp(value_of(list, "X-Fixed"), "yes") == 0, "X-Fixed changed");
    FUZZ_CHECK(count_lines(list, "Content-Type") >= 1, "no Content-Type");
    const char *signature = value_of(list, "webhook-signature");
    FUZZ_CHECK(signature && strlen(signature) == HTTP_SIGNATURE_BYTES, "signature %s", signature);
    check_value(list, "event-key", event->key);
    check_value(list, "event-type", event->type);
}

static void check_headers(struct fuzz_input *in)
{
    static char fixed_name[] = "X-Fixed", fixed_value[] = "yes";
    static struct setting_pair pair = {fixed_name, fixed_value};
    static const struct setting_map extra = {&pair, 1};
    static char secret[] = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX", *texts[] = {secret, NULL};
    static const struct setting_list secrets = {texts, 1};
    struct error err = {0};
    unsigned char flags = fuzz_byte(in);
    struct http_signer *signer = http_signer_open(&secrets, &err);
    FUZZ_CHECK(signer, "%s", err.text);
    struct http_headers *headers = http_headers_open(&extra, NULL, flags & 1 ? "text/x" : NULL, signer, &err);
    FUZZ_CHECK(headers, "%s", err.text);
    struct arena *arena = arena_new();
    struct event event = {.id = fuzz_int(in)};
    struct span *const parts[] = {&event.key, &event.type, &event.event_id, &event.traceparent};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        *parts[i] = flags & 2 << i ? fuzz_span(in) : (struct span){NULL, 0};
    event.headers = flags & 64 ? fuzz_rest(in) : (struct span){NULL, 0};
    const struct delivery d = {.event = &event, .arena = arena};
    const struct curl_slist *list = http_headers_build(headers, &d, 1795255200, &err);
    if (list) {
        check_list(list, &event);
    } else {
        fuzz_check_error(&err);
        FUZZ_CHECK(err.kind == ERROR_REFUSED, "%s", err.text);
    }
    arena_free(arena);
    http_headers_close(headers);
    http_signer_close(signer);
}

/* ---- the conversation ---- */

/* Says `bytes` and hangs up, to everybody who has sent a whole request. */
static void serve(struct span bytes)
{
    static char heard[16384];
    static size_t size;
    if (!fake_server_accept(&server))
        return;
    size += fake_server_read(&server, heard + size, sizeof heard - size);
    const char *body = memmem(heard, size, "\r\n\r\n", 4);
    FUZZ_CHECK(size < sizeof heard, "an endless request");
    if (!body || heard + size - body < (ptrdiff_t)strlen("\r\n\r\n{}"))
        return;
    FUZZ_CHECK(strncmp(heard, "POST /in/orders HTTP/1.1\r\n", 26) == 0, "%.*s", (int)size, heard);
    fake_server_write(&server, bytes);
    fake_server_hang_up(&server);
    size = 0;
}

static void converse(struct sink *sink, struct span bytes)
{
    struct pollset *ps = pollset_new();
    struct error err;
    for (int i = 0; i < TURNS && sink->in_flight > 0; i++) {
        instant_us now = clock_now();
        pollset_clear(ps);
        sink_prepare(sink, ps);
        pollset_deadline(ps, now + MS_US);
        FUZZ_CHECK(pollset_wait(ps, now, &err), "%s", err.text);
        sink_progress(sink, ps, clock_now());
        serve(bytes);
    }
    pollset_free(ps);
}

/* Is there "HTTP/9.9 2" or "HTTP/9 2", of any digits? */
static bool says_2xx(struct span bytes)
{
    for (size_t i = 0; i + 8 <= bytes.size; i++) {
        const char *p = bytes.data + i, *end = bytes.data + bytes.size;
        if (strncmp(p, "HTTP/", 5) != 0)
            continue;
        p += 6;
        p += *p == '.' && end - p > 3 ? 2 : 0;
        if (p[0] == ' ' && p + 1 < end && p[1] == '2')
            return true;
    }
    return false;
}

static void check_answer(struct span bytes)
{
    const struct sink_type *type = sink_type_find("http");
    void *settings = memory_new(type->settings_size);
    struct error err = {0};
    setting_defaults(type->settings, settings);
    FUZZ_CHECK(setting_parse(setting_find(type->settings, "url"), url, settings, &err), "%s", err.text);
    struct sink *sink = sink_open(type, "fuzz", settings, &err);
    FUZZ_CHECK(sink, "%s", err.text);
    struct arena *arena = arena_new();
    struct event event = {.id = 1, .payload = SPAN_LITERAL("{}"), .attempt = 1};
    struct delivery d = {.event = &event, .arena = arena, .destination = SPAN_LITERAL("orders")}, *ds[] = {&d};
    FUZZ_CHECK(sink_submit(sink, ds, 1, clock_now()) == 1, "a short count");
    converse(sink, bytes);
    FUZZ_CHECK(sink_take_resolved(sink) == &d && !sink_take_resolved(sink), "not one verdict");
    FUZZ_CHECK((d.verdict == VERDICT_ACKED) == (d.cause == NULL), "verdict %d", d.verdict);
    FUZZ_CHECK(d.verdict != VERDICT_ACKED || says_2xx(bytes), "acked by %.*s", (int)bytes.size, bytes.data);
    FUZZ_CHECK(d.retry_after_us >= 0 && d.retry_after_us <= HTTP_RETRY_AFTER_MAX_US, "%lld",
               (long long)d.retry_after_us);
    if (d.cause)
        fuzz_check_error(d.cause);
    sink_close(sink);
    arena_free(arena);
    setting_free(type->settings, settings);
    free(settings);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    snprintf(url, sizeof url, "http://127.0.0.1:%d/in", fake_server_open_tcp(&server));
    return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? 0 : 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    unsigned char what = fuzz_byte(&in);
    switch (what & 3) {
    case 0: {
        int64_t number = fuzz_int(&in);
        check_status((long)(what & 4 ? number : number % 1000), what & 8);
        check_transfer((CURLcode)(number & 127), what & 8);
        break;
    }
    case 1: {
        int64_t wall_s = fuzz_int(&in) & INT32_MAX;
        check_retry_after(fuzz_rest(&in), wall_s);
        break;
    }
    case 2:
        check_headers(&in);
        break;
    default:
        check_answer(fuzz_rest(&in));
    }
    return 0;
}
