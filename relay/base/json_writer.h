/* relay/base/json_writer.h -- JSON text into one growing buffer.
 *
 *   struct json_writer json = {0};  json_write_* ...  use json.data, json.size  ->  json_writer_done
 *
 * It writes tokens and knows no structure: commas and braces are the caller's. Set `size` to 0 to use the buffer
 * again. */
#pragma once

#include "relay/base/span.h"

#include <stdint.h>

struct json_writer {
    char *data; /* no NUL after it */
    size_t size, capacity;
};

void json_writer_done(struct json_writer *json); /* frees the buffer and leaves the writer empty, ready again */

void json_write_raw(struct json_writer *json, struct span bytes);
void json_write_int(struct json_writer *json, int64_t number);

/* A quoted, escaped string. The text must be UTF-8 (utf8.h). */
void json_write_text(struct json_writer *json, struct span text);

/* A quoted base64 string (RFC 4648, with padding). */
void json_write_base64(struct json_writer *json, struct span bytes);

/* Valid JSON made elsewhere, token for token, on one line: line breaks become spaces. Valid JSON has them only
 * between tokens. */
void json_write_spliced(struct json_writer *json, struct span document);

/* "2026-11-21T10:00:00.123456Z", quoted. */
void json_write_instant(struct json_writer *json, int64_t wall_us);
