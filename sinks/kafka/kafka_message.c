#include "sinks/kafka/kafka_message.h"

#include "sinks/event_headers.h"

#include <inttypes.h>
#include <stdio.h>

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

static bool add(rd_kafka_headers_t *headers, struct span name, struct span value)
{
    return rd_kafka_header_add(headers, name.data, (ssize_t)name.size, value.data, (ssize_t)value.size) ==
           RD_KAFKA_RESP_ERR_NO_ERROR;
}

static bool add_events(rd_kafka_headers_t *headers, struct span json, struct error *err)
{
    struct event_headers list;
    if (!event_headers_read(json, &list, err))
        return false;
    bool added = true;
    for (size_t i = 0; added && i < list.count; i++)
        added = add(headers, list.list[i].name, list.list[i].value) ||
                error_set(err, ERROR_REFUSED, "headers cannot be turned into record headers");
    event_headers_done(&list);
    return added;
}

rd_kafka_headers_t *kafka_message_headers(const struct event *event, struct error *err)
{
    rd_kafka_headers_t *headers = rd_kafka_headers_new(8);
    if (!add_events(headers, event->headers, err)) {
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
        add(headers, SPAN_LITERAL("traceparent"), event->traceparent);
    if (event->type.data)
        add(headers, SPAN_LITERAL("type"), event->type);
    add(headers, SPAN_LITERAL("id"), id);
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
