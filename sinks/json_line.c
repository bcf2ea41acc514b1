#include "sinks/json_line.h"

#include "relay/base/json_check.h"
#include "relay/base/utf8.h"

static void write_name(struct json_writer *json, const char *name, const char *suffix)
{
    json_write_raw(json, SPAN_LITERAL(",\""));
    json_write_raw(json, span_of(name));
    json_write_raw(json, span_of(suffix));
    json_write_raw(json, SPAN_LITERAL("\":"));
}

static void write_base64(struct json_writer *json, const char *name, struct span value)
{
    write_name(json, name, "_base64");
    json_write_base64(json, value);
}

static void write_member(struct json_writer *json, const char *name, struct span value, enum payload_kind kind)
{
    if (value.data && (kind == PAYLOAD_BYTES || !utf8_valid(value))) {
        write_base64(json, name, value);
        return;
    }
    write_name(json, name, "");
    if (!value.data)
        json_write_raw(json, SPAN_LITERAL("null"));
    else if (kind == PAYLOAD_JSON)
        json_write_spliced(json, value);
    else
        json_write_text(json, value);
}

static void write_optional(struct json_writer *json, const char *name, struct span value)
{
    if (value.data)
        write_member(json, name, value, PAYLOAD_TEXT);
}

static void write_created_at(struct json_writer *json, int64_t wall_us)
{
    write_name(json, "created_at", "");
    if (wall_us == EVENT_NO_TIME)
        json_write_raw(json, SPAN_LITERAL("null"));
    else
        json_write_instant(json, wall_us);
}

/* A text column may hold anything; a line stays JSON whatever it holds. */
static enum payload_kind headers_kind(const struct event *event)
{
    if (event->headers_kind == PAYLOAD_JSON || !event->headers.data)
        return PAYLOAD_JSON;
    return json_check(event->headers, false, NULL) ? PAYLOAD_JSON : PAYLOAD_TEXT;
}

void json_line_write(struct json_writer *json, const struct delivery *d)
{
    const struct event *event = d->event;
    json_write_raw(json, SPAN_LITERAL("{\"id\":"));
    json_write_int(json, event->id);
    write_member(json, "key", event->key, PAYLOAD_TEXT);
    write_member(json, "type", event->type, PAYLOAD_TEXT);
    write_member(json, "destination", d->destination, PAYLOAD_TEXT);
    write_member(json, "payload", event->payload, event->payload_kind);
    write_member(json, "headers", event->headers, headers_kind(event));
    write_created_at(json, event->created_at_us);
    write_name(json, "attempt", "");
    json_write_int(json, event->attempt);
    write_optional(json, "event_id", event->event_id);
    write_optional(json, "traceparent", event->traceparent);
    json_write_raw(json, SPAN_LITERAL("}\n"));
}
