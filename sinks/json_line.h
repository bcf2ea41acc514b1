/* sinks/json_line.h -- one delivery as one line of JSON.
 *
 *   {"id":812,"key":"7","type":"paid","destination":"orders.paid","payload":{"total":12.50},"headers":null,
 *    "created_at":"2026-11-21T10:00:00.123456Z","attempt":1}
 *
 * Always these eight members in this order; then "event_id" and "traceparent" where the table has them. What is
 * absent is null. A JSON payload and the headers are spliced in as the database wrote them (numbers keep every
 * digit), a text payload is a JSON string. A value that JSON cannot carry as text, that is bytea or text which is not
 * UTF-8, is written as NAME_base64 in place of NAME. */
#pragma once

#include "relay/base/json_writer.h"
#include "sinks/delivery.h"

/* Appends the line and its newline. */
void json_line_write(struct json_writer *json, const struct delivery *d);
