#include "relay/base/log.h"

#include "relay/base/clock.h"
#include "relay/base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES_MAX 4096 /* PIPE_BUF: such a write is whole or not at all */
#define PLAIN_BYTES_MAX 200 /* a longer text is quoted, because only quoted ones are cut */
#define ESCAPE_BYTES_MAX 8  /* of one character: \u00XX, a quote and a comma after it */

/* A line under way. The last bytes are kept free, so that a line that is cut can still be closed: a JSON line stays
 * JSON. */
struct line {
    char text[LINE_BYTES_MAX];
    size_t size;
    bool cut;
};

#define CLOSING_BYTES 16

static bool append(struct line *line, const char *bytes, size_t size)
{
    if (line->cut || size > LINE_BYTES_MAX - CLOSING_BYTES - line->size) {
        line->cut = true;
        return false;
    }
    memcpy(line->text + line->size, bytes, size);
    line->size += size;
    return true;
}

static void append_text(struct line *line, const char *text)
{
    append(line, text, strlen(text));
}

/* Past the cut, into the bytes that were kept for it. */
static void append_closing(struct line *line, const char *text)
{
    size_t size = strlen(text);
    memcpy(line->text + line->size, text, size);
    line->size += size;
}

/* ---- values ---- */

/* One character of a quoted text. Both formats share JSON's escapes, which logfmt readers know, too. */
static bool append_escaped(struct line *line, const char *bytes, size_t size)
{
    static const char *const short_escapes[256] = {
        ['"'] = "\\\"", ['\\'] = "\\\\", ['\n'] = "\\n", ['\r'] = "\\r", ['\t'] = "\\t"};
    unsigned char first = (unsigned char)*bytes;
    char code[ESCAPE_BYTES_MAX];
    if (size == 1 && short_escapes[first])
        return append(line, short_escapes[first], 2);
    if (size > 1 || (first >= ' ' && first != 0x7f))
        return append(line, bytes, size);
    snprintf(code, sizeof code, "\\u%04x", first);
    return append(line, code, 6);
}

/* What is not UTF-8 becomes U+FFFD, a byte at a time. */
static void append_quoted(struct line *line, struct span text)
{
    if (!append(line, "\"", 1))
        return;
    while (text.size && !line->cut) {
        size_t size = utf8_char(text);
        if (size)
            append_escaped(line, text.data, size);
        else
            append_text(line, "\xEF\xBF\xBD");
        size = size ? size : 1;
        text = (struct span){text.data + size, text.size - size};
    }
    if (!append(line, "\"", 1))
        append_closing(line, "\"");
}

/* Letters, digits and harmless signs only; anything else is quoted. */
static bool is_plain(struct span text)
{
    static const char harmless[] = "-_./:+@%,";
    for (size_t i = 0; i < text.size; i++) {
        char c = text.data[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!alnum && !memchr(harmless, c, sizeof harmless - 1))
            return false;
    }
    return text.size > 0 && text.size <= PLAIN_BYTES_MAX;
}

static void append_value(struct line *line, enum log_format format, const struct log_field *field)
{
    char number[64];
    switch (field->kind) {
    case LOG_FIELD_INT:
        snprintf(number, sizeof number, "%" PRId64, field->integer);
        append_text(line, number);
        break;
    case LOG_FIELD_REAL:
        snprintf(number, sizeof number, "%.6g", field->real);
        /* JSON has no word for these. */
        append_text(line, isfinite(field->real) ? number : "null");
        break;
    case LOG_FIELD_TEXT:
        if (format == LOG_LOGFMT && is_plain(field->text))
            append(line, field->text.data, field->text.size);
        else
            append_quoted(line, field->text);
        break;
    }
}

static void append_field(struct line *line, enum log_format format, const struct log_field *field)
{
    /* A field that does not fit with its name and the start of its value is left out whole. */
    size_t size = line->size;
    if (format == LOG_JSON) {
        append_text(line, line->text[line->size - 1] == '{' ? "" : ",");
        append_quoted(line, span_of(field->name));
        append_text(line, ":");
    } else {
        append_text(line, " ");
        append_text(line, field->name);
        append_text(line, "=");
    }
    if (line->cut) {
        line->size = size;
        return;
    }
    size_t value_at = line->size;
    append_value(line, format, field);
    if (line->cut && line->size == value_at)
        line->size = size;
}

/* ---- lines ---- */

static const struct {
    const char *name;
    int priority; /* syslog(3) */
} levels[] = {
    [LOG_ERROR] = {"error", 3},
    [LOG_WARN] = {"warn", 4},
    [LOG_INFO] = {"info", 6},
    [LOG_DEBUG] = {"debug", 7},
};

/* systemd says in $JOURNAL_STREAM which file it reads for us: only there is a priority prefix understood. */
static bool goes_to_journal(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM");
    struct stat st;
    char ours[64];
    if (!stream || fstat(fd, &st) != 0)
        return false;
    snprintf(ours, sizeof ours, "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    return strcmp(stream, ours) == 0;
}

static void append_head(struct line *line, const struct log *log, enum log_level level, const char *fact)
{
    int64_t wall_us = clock_wall_us();
    time_t seconds = (time_t)(wall_us / SECOND_US);
    struct tm tm;
    char stamp[80], time_text[40];
    gmtime_r(&seconds, &tm);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(time_text, sizeof time_text, "%.24s.%03dZ", stamp, (int)(wall_us % SECOND_US / MS_US));
    const struct log_field level_field = log_text("level", levels[level].name), fact_field = log_text("msg", fact),
                           time_field = log_text("time", time_text);
    if (goes_to_journal(log->fd)) {
        snprintf(stamp, sizeof stamp, "<%d>", levels[level].priority);
        append_text(line, stamp);
    }
    if (log->format == LOG_JSON) {
        append_text(line, "{");
        append_field(line, LOG_JSON, &time_field);
    } else {
        append_text(line, time_text);
    }
    append_field(line, log->format, &level_field);
    append_field(line, log->format, &fact_field);
}

/* One write, so that lines of several processes do not mix. What a full or closed stderr does not take is lost: waiting
 * for whoever reads the log would stop deliveries. poll(2) promises room for PIPE_BUF bytes, so that even a blocking
 * pipe does not block. */
static void write_line(int fd, const char *text, size_t size)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLOUT};
    if (poll(&pollfd, 1, 0) == 0)
        return;
    ssize_t ignored = TEMP_FAILURE_RETRY(write(fd, text, size));
    (void)ignored;
}

void log_write(const struct log *log, enum log_level level, const char *fact, const struct log_field *fields,
               size_t count)
{
    if (level > log->level)
        return;
    struct line line = {.size = 0, .cut = false};
    append_head(&line, log, level, fact);
    for (size_t i = 0; i < count && !line.cut; i++)
        append_field(&line, log->format, &fields[i]);
    if (log->format == LOG_JSON)
        append_closing(&line, "}");
    append_closing(&line, "\n");
    write_line(log->fd, line.text, line.size);
}

bool log_level_parse(const char *text, enum log_level *ret)
{
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        if (strcmp(levels[i].name, text) == 0) {
            *ret = (enum log_level)i;
            return true;
        }
    }
    return false;
}

bool log_format_parse(const char *text, enum log_format *ret)
{
    static const char *const names[] = {[LOG_LOGFMT] = "logfmt", [LOG_JSON] = "json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], text) == 0) {
            *ret = (enum log_format)i;
            return true;
        }
    }
    return false;
}
