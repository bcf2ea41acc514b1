/* relay/base/log.h -- one fact a line on stderr.
 *
 *   LOG(log, LOG_WARN, "delivery.retry", log_int("event", 812), log_text("cause", err.text))
 *   -> 2026-11-21T10:00:00.123Z level=warn msg=delivery.retry event=812 cause="broker down"
 *
 * Only relay/relay.c, the command_*.c files and main.c log; everything below returns errors. Payloads and secrets are
 * never logged. A closed or full stderr loses lines, never the process. */
#pragma once

#include "relay/base/span.h"

#include <stdint.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_LOGFMT, LOG_JSON };

struct log {
    enum log_level level; /* lines above it are dropped */
    enum log_format format;
    int fd;
};

enum log_field_kind { LOG_FIELD_INT, LOG_FIELD_REAL, LOG_FIELD_TEXT };

struct log_field {
    const char *name;
    enum log_field_kind kind;
    int64_t integer;
    double real;
    struct span text;
};

static inline struct log_field log_int(const char *name, int64_t value)
{
    return (struct log_field){.name = name, .kind = LOG_FIELD_INT, .integer = value};
}

static inline struct log_field log_real(const char *name, double value)
{
    return (struct log_field){.name = name, .kind = LOG_FIELD_REAL, .real = value};
}

static inline struct log_field log_span(const char *name, struct span value)
{
    return (struct log_field){.name = name, .kind = LOG_FIELD_TEXT, .text = value};
}

static inline struct log_field log_text(const char *name, const char *value)
{
    return log_span(name, span_of(value ? value : ""));
}

/* `fact` is SUBJECT.VERB, e.g. "queue.claim_failed". Lines longer than 4 kB are cut. */
void log_write(const struct log *log, enum log_level level, const char *fact, const struct log_field *fields,
               size_t count);

#define LOG(log, level, fact, ...)                                                                                     \
    log_write((log), (level), (fact), (const struct log_field[]){__VA_ARGS__},                                         \
              sizeof((const struct log_field[]){__VA_ARGS__}) / sizeof(struct log_field))

bool log_level_parse(const char *text, enum log_level *ret);   /* error warn info debug */
bool log_format_parse(const char *text, enum log_format *ret); /* logfmt json */
