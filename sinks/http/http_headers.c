#include "sinks/http/http_headers.h"

#include "sinks/event_headers.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

struct http_headers {
    struct curl_slist *fixed; /* the tail of every list */
    const struct setting_map *extra;
    const char *content_type;
    const struct http_signer *signer; /* or NULL */
};

/* Names an event may not set. They are left out, not refused: an event that carries along the headers it was made
 * from is common, and none of these would mean anything to the receiver. */
static const struct reserved_name {
    const char *name; /* lower case; a '-' at the end: every name that starts so */
    bool configurable;
} reserved_names[] = {
    /* they frame the message: a wrong one smuggles a second request */
    {"content-length", false},
    {"transfer-encoding", false},
    {"trailer", false},
    {"te", false},
    {"expect", false},
    /* they belong to the connection */
    {"connection", false},
    {"keep-alive", false},
    {"upgrade", false},
    {"http2-settings", false},
    {"proxy-", false},
    /* where the request goes and who sends it come from the configuration only */
    {"host", true},
    {"authorization", true},
    {"cookie", true},
    {"user-agent", true},
    /* what receivers trust to be ours */
    {"webhook-", false},
    {"event-id", false},
    {"event-key", false},
    {"event-type", false},
    {"event-tombstone", false},
};

static char folded(char c)
{
    return isalnum((unsigned char)c) ? (char)tolower((unsigned char)c) : '-';
}

/* Does `name` begin like this? CGI, WSGI and their like tell an application names in capitals, and all of them, or
 * some, write one character for whatever is neither letter nor digit: Webhook_Id and webhook.id are webhook-id there.
 */
static bool begins_like(const char *name, const char *begin, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (!name[i] || folded(name[i]) != folded(begin[i]))
            return false;
    return true;
}

static const struct reserved_name *reserved(const char *name)
{
    for (size_t i = 0; i < sizeof reserved_names / sizeof reserved_names[0]; i++) {
        const struct reserved_name *row = &reserved_names[i];
        size_t size = strlen(row->name);
        bool prefix = row->name[size - 1] == '-';
        if (begins_like(name, row->name, size) && (prefix || name[size] == '\0'))
            return row;
    }
    return NULL;
}

static bool is_token(const char *name)
{
    static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return *name && name[strspn(name, token)] == '\0';
}

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || (unsigned char)*text > '~')
            return false;
    return true;
}

static bool is_configured(const struct http_headers *headers, const char *name)
{
    for (size_t i = 0; i < headers->extra->count; i++) {
        const char *given = headers->extra->pairs[i].name;
        if (strlen(given) == strlen(name) && begins_like(name, given, strlen(given)))
            return true;
    }
    return false;
}

/* ---- the configured part ---- */

/* libcurl reads "Name:" as "leave it out" and "Name;" as "send it empty". */
static bool fixed_add(struct http_headers *headers, const char *name, const char *value)
{
    size_t size = strlen(name) + strlen(value) + 3;
    char *line = memory_new(size);
    snprintf(line, size, *value ? "%s: %s" : "%s;", name, value);
    struct curl_slist *longer = curl_slist_append(headers->fixed, line);
    explicit_bzero(line, size);
    free(line);
    if (longer)
        headers->fixed = longer;
    return longer != NULL;
}

static bool check_extra(const struct setting_pair *pair, const char *bearer_token, struct error *err)
{
    if (!is_token(pair->name))
        return error_set(err, ERROR_CONFIG, "headers: \"%s\" is not a header name", pair->name);
    if (strcasecmp(pair->name, "content-type") == 0)
        return error_set(err, ERROR_CONFIG, "headers: set Content-Type with content_type");
    const struct reserved_name *row = reserved(pair->name);
    if (row && !row->configurable)
        return error_set(err, ERROR_CONFIG, "headers: %s is set by pgcourier itself; remove it", pair->name);
    if (bearer_token && strcasecmp(pair->name, "authorization") == 0)
        return error_set(err, ERROR_CONFIG, "headers: Authorization and bearer_token are both given; remove one");
    if (!is_printable(pair->value))
        return error_set(err, ERROR_CONFIG, "headers: the value of %s is not printable ASCII", pair->name);
    return true;
}

static bool fixed_fill(struct http_headers *headers, const char *bearer_token, struct error *err)
{
    /* Without this libcurl asks for a 100 Continue before large bodies and waits a second where nobody answers. */
    struct curl_slist *no_expect = curl_slist_append(NULL, "Expect:");
    headers->fixed = no_expect;
    bool ok = no_expect != NULL;
    for (size_t i = 0; i < headers->extra->count; i++) {
        const struct setting_pair *pair = &headers->extra->pairs[i];
        if (!check_extra(pair, bearer_token, err))
            return false;
        ok = ok && fixed_add(headers, pair->name, pair->value);
    }
    if (bearer_token) {
        if (!*bearer_token || !is_printable(bearer_token) || strchr(bearer_token, ' '))
            return error_set(err, ERROR_CONFIG, "bearer_token: empty, or has spaces or control characters in it");
        size_t size = strlen(bearer_token) + sizeof "Bearer ";
        char *value = memory_new(size);
        snprintf(value, size, "Bearer %s", bearer_token);
        ok = ok && fixed_add(headers, "Authorization", value);
        explicit_bzero(value, size);
        free(value);
    }
    return ok || error_set(err, ERROR_RESOURCE, "headers: out of memory");
}

struct http_headers *http_headers_open(const struct setting_map *extra, const char *bearer_token,
                                       const char *content_type, const struct http_signer *signer, struct error *err)
{
    if (content_type && !is_printable(content_type)) {
        error_set(err, ERROR_CONFIG, "content_type: not printable ASCII");
        return NULL;
    }
    struct http_headers *headers = memory_new(sizeof *headers);
    headers->extra = extra;
    headers->content_type = content_type;
    headers->signer = signer;
    if (fixed_fill(headers, bearer_token, err))
        return headers;
    http_headers_close(headers);
    return NULL;
}

void http_headers_close(struct http_headers *headers)
{
    if (!headers)
        return;
    for (struct curl_slist *line = headers->fixed; line; line = line->next)
        explicit_bzero(line->data, strlen(line->data));
    curl_slist_free_all(headers->fixed);
    free(headers);
}

/* ---- the event's part ---- */

struct build {
    struct arena *arena;
    struct curl_slist *list;
    size_t total;
    bool typed; /* by the event's own Content-Type */
};

static void add_line(struct build *build, char *line)
{
    struct curl_slist *node = arena_alloc(build->arena, sizeof *node);
    *node = (struct curl_slist){.data = line, .next = build->list};
    build->list = node;
}

static bool goes_encoded(struct span value, size_t i)
{
    unsigned char c = (unsigned char)value.data[i];
    return c < ' ' || c > '~' || c == '%' || (c == ' ' && (i == 0 || i == value.size - 1));
}

static bool add(struct build *build, const char *name, struct span value, struct error *err)
{
    size_t name_size = strlen(name), size = value.size;
    if (value.size <= HTTP_HEADER_VALUE_MAX)
        for (size_t i = 0; i < value.size; i++)
            size += goes_encoded(value, i) ? 2 : 0;
    if (size > HTTP_HEADER_VALUE_MAX)
        return error_set(err, ERROR_REFUSED, "header %.64s: a value of %zu bytes, %d are the most", name, size,
                         HTTP_HEADER_VALUE_MAX);
    if (strcmp(name, EVENT_HEADER_REPLAYED) != 0) /* what could be sent once can be sent again */
        build->total += name_size + size;
    if (build->total > HTTP_HEADERS_TOTAL_MAX)
        return error_set(err, ERROR_REFUSED, "headers: more than %d bytes in all", HTTP_HEADERS_TOTAL_MAX);
    char *line = arena_alloc(build->arena, name_size + size + 3), *out = mempcpy(line, name, name_size);
    *out++ = size ? ':' : ';'; /* see fixed_add() */
    if (size)
        *out++ = ' ';
    for (size_t i = 0; i < value.size; i++) {
        unsigned char c = (unsigned char)value.data[i];
        if (!goes_encoded(value, i)) {
            *out++ = (char)c;
            continue;
        }
        *out++ = '%';
        *out++ = "0123456789ABCDEF"[c >> 4];
        *out++ = "0123456789ABCDEF"[c & 15];
    }
    add_line(build, line);
    return true;
}

static bool add_number(struct build *build, const char *name, int64_t number, struct error *err)
{
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)number);
    return add(build, name, span_of(text), err);
}

/* Standard Webhooks signs "id.timestamp.body", so the id must not hold a dot. */
static bool add_webhook_id(struct build *build, const struct event *event, struct error *err)
{
    if (event->event_id.size == 0)
        return add_number(build, "webhook-id", event->id, err);
    if (memchr(event->event_id.data, '.', event->event_id.size))
        return error_set(err, ERROR_REFUSED, "event_id: has a dot in it, which a webhook-id must not have");
    return add(build, "webhook-id", event->event_id, err);
}

/* Of the line that was added last, which is not empty. */
static struct span last_value(const struct build *build)
{
    return span_of(strchr(build->list->data, ' ') + 1);
}

/* What is signed is what the receiver reads: the values as the lines have them, and the body as it is sent. The
 * signature counts for no limit, because an event that can be sent can be sent with one secret more. */
static bool add_webhook(struct build *build, const struct http_headers *headers, const struct event *event,
                        int64_t wall_s, struct error *err)
{
    static const char name[] = "webhook-signature: ";
    struct http_signed what = {.body = event->payload};
    if (!add_webhook_id(build, event, err))
        return false;
    what.id = last_value(build);
    if (!add_number(build, "webhook-timestamp", wall_s, err))
        return false;
    what.timestamp = last_value(build);
    if (!headers->signer)
        return true;
    char *line = arena_alloc(build->arena, sizeof name + HTTP_SIGNATURES_BYTES_MAX);
    if (!http_signer_sign(headers->signer, &what, mempcpy(line, name, sizeof name - 1), err))
        return false;
    add_line(build, line);
    return true;
}

/* 00-<32 hex>-<16 hex>-<2 hex>. A bad one is left out: tracing is never a reason to hold back an event. */
static bool is_traceparent(struct span text)
{
    static const char shape[] = "xx-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx-xxxxxxxxxxxxxxxx-xx";
    if (text.size != sizeof shape - 1)
        return false;
    for (size_t i = 0; i < text.size; i++)
        if (shape[i] == '-' ? text.data[i] != '-' : !text.data[i] || !strchr("0123456789abcdef", text.data[i]))
            return false;
    return true;
}

static const char *kind_content_type(enum payload_kind kind)
{
    static const char *const names[] = {
        [PAYLOAD_JSON] = "application/json",
        [PAYLOAD_TEXT] = "text/plain",
        [PAYLOAD_BYTES] = "application/octet-stream",
    };
    return names[kind];
}

static bool add_own(struct build *build, const struct event *event, struct error *err)
{
    if (!add_number(build, "event-id", event->id, err))
        return false;
    if (event->key.data && !add(build, "event-key", event->key, err))
        return false;
    if (event->type.data && !add(build, "event-type", event->type, err))
        return false;
    if (!event->payload.data && !add(build, "event-tombstone", SPAN_LITERAL("true"), err))
        return false;
    return !is_traceparent(event->traceparent) || add(build, "traceparent", event->traceparent, err);
}

static size_t own_count(const struct event_headers *list)
{
    size_t count = list->count;
    for (size_t i = 0; i < list->count; i++)
        count -= strcmp(list->list[i].name.data, EVENT_HEADER_REPLAYED) == 0;
    return count;
}

/* What is reserved, configured or already there from a column is left out. */
static bool add_list(struct build *build, const struct http_headers *headers, const struct event_headers *list,
                     bool traced, struct error *err)
{
    if (own_count(list) > HTTP_HEADERS_MAX)
        return error_set(err, ERROR_REFUSED, "headers: %zu entries, %d are the most", own_count(list),
                         HTTP_HEADERS_MAX);
    for (size_t i = 0; i < list->count; i++) {
        const char *name = list->list[i].name.data;
        if (!is_token(name)) /* not repeated: it may be anything */
            return error_set(err, ERROR_REFUSED, "headers: the name of entry %zu cannot be an HTTP header's", i + 1);
        if (!list->list[i].value.data || reserved(name) || is_configured(headers, name) ||
            (traced && strcasecmp(name, "traceparent") == 0))
            continue;
        if (strcasecmp(name, "content-type") == 0) {
            if (headers->content_type)
                continue;
            build->typed = true;
        }
        if (!add(build, name, list->list[i].value, err))
            return false;
    }
    return true;
}

static bool add_events(struct build *build, const struct http_headers *headers, const struct event *event,
                       struct error *err)
{
    struct event_headers list;
    if (!event_headers_read(event->headers, &list, err))
        return false;
    bool added = add_list(build, headers, &list, is_traceparent(event->traceparent), err);
    event_headers_done(&list);
    return added;
}

struct curl_slist *http_headers_build(const struct http_headers *headers, const struct delivery *d, int64_t wall_s,
                                      struct error *err)
{
    struct build build = {.arena = d->arena, .list = headers->fixed};
    if (!add_events(&build, headers, d->event, err) || !add_webhook(&build, headers, d->event, wall_s, err) ||
        !add_own(&build, d->event, err))
        return NULL;
    const char *type = headers->content_type ? headers->content_type : kind_content_type(d->event->payload_kind);
    if (!build.typed && !add(&build, "Content-Type", span_of(type), err))
        return NULL;
    return build.list;
}
