/* sinks/kafka/kafka_message.h -- an event as Kafka sees it. */
#pragma once

#include "sinks/delivery.h"

#include <librdkafka/rdkafka.h>

/* False and *err (ERROR_REFUSED) when no topic can have this name. */
bool kafka_message_check_topic(struct span topic, struct error *err) MUST_CHECK;

/* The record headers: those of the event's `headers`, then traceparent, type and id, so that for a consumer that takes
 * the last header of a name ours win. The caller's: rd_kafka_headers_destroy(), unless produce takes them. NULL and
 * *err (ERROR_REFUSED) when the event's headers are not a JSON object. */
rd_kafka_headers_t *kafka_message_headers(const struct event *event, struct error *err) MUST_CHECK;

/* At most so many bytes of a batch. */
size_t kafka_message_bytes(const struct event *event, const rd_kafka_headers_t *headers);

/* Creation time in milliseconds for the record, 0 = let librdkafka take the current time. */
int64_t kafka_message_timestamp_ms(const struct event *event);
