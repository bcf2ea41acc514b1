#include "sinks/kafka_message.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#define TOPIC_MAX 249
#define RECORD_BYTES 64
#define HEADER_BYTES 20

static bool is_legal(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
}

bool kafka_message_check_topic(struct span topic, struct error *err)
{
    if (topic.size == 0)
        return error_set(err, ERROR_REFUSED, "the topic's name is empty");
    if (topic.size > TOPIC_MAX)
        return error_set(err, ERROR_REFUSED, "the topic's name has %zu bytes; Kafka allows %d", topic.size, TOPIC_MAX);
    for (size_t i = 0; i < topic.size; i++)
        if (!is_legal(topic.data[i]))
            return error_set(err, ERROR_REFUSED,
                             "byte 0x%02x at place %zu is not allowed in a topic's name; only a-z A-Z 0-9 . _ - are",
                             (unsigned)(unsigned char)topic.data[i], i + 1);
    if (topic.data[0] == '.' && (topic.size == 1 || (topic.size == 2 && topic.data[1] == '.')))
        return error_set(err, ERROR_REFUSED, "a topic cannot be called \".\" or \"..\"");
    return true;
}

static bool add(rd_kafka_headers_t *headers, const char *name, size_t name_size, struct span value)
{
    return rd_kafka_header_add(headers, name, (ssize_t)name_size, value.data, (ssize_t)value.size) ==
           RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* Strings as their bytes, null as a header without a value, anything else as JSON. */
static bool add_json(rd_kafka_headers_t *headers, const char *name, size_t name_size, const json_t *value)
{
    if (json_is_null(value))
        return add(headers, name, name_size, (struct span){0});
    if (json_is_string(value))
        return add(headers, name, name_size, (struct span){json_string_value(value), json_string_length(value)});
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    bool added = text && add(headers, name, name_size, span_of(text));
    free(text);
    return added;
}

static bool add_object(rd_kafka_headers_t *headers, struct span text, struct error *err)
{
    /* jansson's message would quote the text, so only its place is told. */
    json_error_t at;
    json_t *object = json_loadb(text.data, text.size, JSON_ALLOW_NUL, &at);
    if (!object)
        return error_set(err, ERROR_REFUSED, "headers is not JSON that can be read: error at byte %d", at.position);
    bool added = json_is_object(object);
    if (!added)
        error_set(err, ERROR_REFUSED, "headers is not a JSON object");
    const char *name;
    size_t name_size;
    json_t *value;
    json_object_keylen_foreach(object, name, name_size, value)
    {
        if (added && !add_json(headers, name, name_size, value))
            added = error_set(err, ERROR_REFUSED, "headers cannot be turned into record headers");
    }
    json_decref(object);
    return added;
}

rd_kafka_headers_t *kafka_message_headers(const struct event *event, struct error *err)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(8);
    if (event->headers.data && !add_object(headers, event->headers, err)) {
        rd_kafka_headers_destroy(headers);
        return NULL;
    }
    char number[24];
    struct span id = event->event_id;
    if (!id.data) {
        snprintf(number, sizeof number, "%" PRId64, event->id);
        id = span_of(number);
    }
    if (event->traceparent.data)
        add(headers, "traceparent", strlen("traceparent"), event->traceparent);
    if (event->type.data)
        add(headers, "type", strlen("type"), event->type);
    add(headers, "id", strlen("id"), id);
    return headers;
}

size_t kafka_message_bytes(const struct event *event, const rd_kafka_headers_t *headers)
{
    /* Lengths and deltas are varints of 10 bytes at most. */
    size_t bytes = event->key.size + event->payload.size + RECORD_BYTES;
    const char *name;
    const void *value;
    size_t size;
    for (size_t i = 0; rd_kafka_header_get_all(headers, i, &name, &value, &size) == RD_KAFKA_RESP_ERR_NO_ERROR; i++)
        bytes += strlen(name) + size + HEADER_BYTES;
    return bytes;
}

int64_t kafka_message_timestamp_ms(const struct event *event)
{
    /* Kafka has no time before 1970. */
    return event->created_at_us > 0 ? event->created_at_us / 1000 : 0;
}
