/* What an answer means and what a request's header holds: every status and every broken transfer has one verdict,
 * Retry-After is bounded, and no event adds a line of its own to a request. */
#include "tests/fuzz/fuzz.h"

#include "sinks/http_headers.h"
#include "sinks/http_verdict.h"

#include <strings.h>

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

static const char *const ours[] = {"webhook-id", "webhook-timestamp", "event-id",    "event-key",
                                   "event-type", "event-tombstone",   "traceparent", "Content-Type"};
static const char *const forbidden[] = {"content-length", "transfer-encoding", "host", "connection", "te", "cookie",
                                        "authorization",  "proxy-connection"};

static size_t count_lines(const struct curl_slist *list, const char *name)
{
    size_t count = 0, size = strlen(name);
    for (; list; list = list->next)
        count += strncasecmp(list->data, name, size) == 0 && (list->data[size] == ':' || list->data[size] == ';');
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
    check_value(list, "event-key", event->key);
    check_value(list, "event-type", event->type);
}

static void check_headers(struct fuzz_input *in)
{
    static char fixed_name[] = "X-Fixed", fixed_value[] = "yes";
    static struct setting_pair pair = {fixed_name, fixed_value};
    static const struct setting_map extra = {&pair, 1};
    struct error err = {0};
    unsigned char flags = fuzz_byte(in);
    struct http_headers *headers = http_headers_open(&extra, NULL, flags & 1 ? "text/x" : NULL, &err);
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
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
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
    default:
        check_headers(&in);
    }
    return 0;
}
