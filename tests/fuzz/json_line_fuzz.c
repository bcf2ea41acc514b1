/* Lines of JSON: whatever is in an event, its line is one line, a parser reads it, and what it reads is the event. */
#include "tests/fuzz/fuzz.h"

#include "relay/base/json_check.h"
#include "relay/base/utf8.h"
#include "sinks/json_line.h"

#include <jansson.h>
#include <time.h>

static int digit_value(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    FUZZ_CHECK(at, "byte 0x%02x in base64", (unsigned char)c);
    return (int)(at - digits);
}

static void check_base64(const char *text, size_t size, struct span wanted)
{
    FUZZ_CHECK(size == (wanted.size + 2) / 3 * 4, "%zu characters for %zu bytes", size, wanted.size);
    for (size_t i = 0; i < wanted.size; i++) {
        const char *group = text + i / 3 * 4;
        int high = digit_value(group[i % 3]), low = digit_value(group[i % 3 + 1]);
        int shift = 2 * (int)(i % 3 + 1);
        FUZZ_CHECK((unsigned char)(high << shift | low >> (6 - shift)) == (unsigned char)wanted.data[i], "byte %zu", i);
    }
    for (size_t i = 0; i < (3 - wanted.size % 3) % 3; i++)
        FUZZ_CHECK(text[size - 1 - i] == '=', "padding of %s", text);
}

static json_t *load(struct span text)
{
    return json_loadb(text.data, text.size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
}

static void check_member(const json_t *line, const char *name, struct span wanted, enum payload_kind kind)
{
    char encoded[32];
    snprintf(encoded, sizeof encoded, "%s_base64", name);
    const json_t *plain = json_object_get(line, name), *base64 = json_object_get(line, encoded);
    FUZZ_CHECK(!plain != !base64, "%s is there twice or not at all", name);
    if (base64) {
        FUZZ_CHECK(wanted.data && (kind == PAYLOAD_BYTES || !utf8_valid(wanted)), "%s as base64", name);
        check_base64(json_string_value(base64), json_string_length(base64), wanted);
    } else if (!wanted.data) {
        FUZZ_CHECK(json_is_null(plain), "%s is not null", name);
    } else if (kind == PAYLOAD_JSON) {
        json_t *parsed = load(wanted);
        FUZZ_CHECK(json_equal(plain, parsed), "%s changed: %.*s", name, (int)wanted.size, wanted.data);
        json_decref(parsed);
    } else {
        FUZZ_CHECK(json_is_string(plain), "%s is not a string", name);
        FUZZ_CHECK(span_equal((struct span){json_string_value(plain), json_string_length(plain)}, wanted),
                   "%s changed: %.*s", name, (int)wanted.size, wanted.data);
    }
}

static void check_created_at(const json_t *line, int64_t wall_us)
{
    const json_t *member = json_object_get(line, "created_at");
    if (wall_us == EVENT_NO_TIME) {
        FUZZ_CHECK(json_is_null(member), "created_at of nothing");
        return;
    }
    struct tm tm = {0};
    int micros = 0, used = 0;
    const char *text = json_string_value(member);
    int read = sscanf(text, "%d-%d-%dT%d:%d:%d.%6dZ%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
                      &tm.tm_sec, &micros, &used);
    FUZZ_CHECK(read == 7 && text[used] == '\0', "%s", text);
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    FUZZ_CHECK((wide_int)timegm(&tm) * 1000000 + micros == wall_us, "%lld became %s", (long long)wall_us, text);
}

static void check_line(struct span bytes, const struct delivery *d)
{
    const struct event *event = d->event;
    FUZZ_CHECK(bytes.size > 0 && memchr(bytes.data, '\n', bytes.size) == bytes.data + bytes.size - 1, "not one line");
    FUZZ_CHECK(!memchr(bytes.data, '\r', bytes.size), "a carriage return");
    FUZZ_CHECK(utf8_valid(bytes), "not UTF-8");
    json_error_t why;
    json_t *line = json_loadb(bytes.data, bytes.size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &why);
    /* An event's own JSON may repeat a name; the line itself never does. */
    if (!line && json_error_code(&why) == json_error_duplicate_key)
        line = json_loadb(bytes.data, bytes.size, JSON_ALLOW_NUL, &why);
    FUZZ_CHECK(line, "%s: %.*s", why.text, (int)bytes.size, bytes.data);
    FUZZ_CHECK(json_integer_value(json_object_get(line, "id")) == event->id, "id");
    FUZZ_CHECK(json_integer_value(json_object_get(line, "attempt")) == event->attempt, "attempt");
    check_member(line, "key", event->key, PAYLOAD_TEXT);
    check_member(line, "type", event->type, PAYLOAD_TEXT);
    check_member(line, "destination", d->destination, PAYLOAD_TEXT);
    check_member(line, "payload", event->payload, event->payload_kind);
    bool headers_are_json =
        event->headers_kind == PAYLOAD_JSON || (event->headers.data && json_check(event->headers, false, NULL));
    check_member(line, "headers", event->headers, headers_are_json ? PAYLOAD_JSON : PAYLOAD_TEXT);
    check_created_at(line, event->created_at_us);
    if (event->event_id.data)
        check_member(line, "event_id", event->event_id, PAYLOAD_TEXT);
    if (event->traceparent.data)
        check_member(line, "traceparent", event->traceparent, PAYLOAD_TEXT);
    json_decref(line);
}

/* What the database calls JSON is JSON. */
static enum payload_kind kind_of(struct span text, unsigned kind)
{
    if (kind != PAYLOAD_JSON || !text.data)
        return (enum payload_kind)kind;
    json_t *parsed = load(text);
    json_decref(parsed);
    return parsed ? PAYLOAD_JSON : PAYLOAD_TEXT;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct event event = {.id = fuzz_int(&in), .created_at_us = fuzz_int(&in), .attempt = fuzz_byte(&in)};
    struct delivery delivery = {.event = &event};
    unsigned char present = fuzz_byte(&in), kinds = fuzz_byte(&in);
    struct span *const parts[] = {&event.key,     &event.type,     &delivery.destination, &event.payload,
                                  &event.headers, &event.event_id, &event.traceparent};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        *parts[i] = present & 1 << i ? fuzz_span(&in) : (struct span){NULL, 0};
    if (present & 128)
        event.payload = fuzz_rest(&in);
    event.payload_kind = kind_of(event.payload, kinds % 3);
    /* What jansson, which reads the line here, cannot hold: numbers of any size and halves of characters. */
    if (event.headers.data && json_check(event.headers, false, NULL) &&
        kind_of(event.headers, PAYLOAD_JSON) != PAYLOAD_JSON)
        event.headers = (struct span){NULL, 0};
    event.headers_kind = kind_of(event.headers, kinds & 4 ? PAYLOAD_JSON : PAYLOAD_TEXT);
    struct json_writer json = {0};
    json_line_write(&json, &delivery);
    check_line((struct span){json.data, json.size}, &delivery);
    json_writer_done(&json);
    return 0;
}
