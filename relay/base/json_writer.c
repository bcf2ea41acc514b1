#include "relay/base/json_writer.h"

#include "relay/base/arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CAPACITY_MIN 256
#define MICROSECONDS INT64_C(1000000)

void json_writer_done(struct json_writer *json)
{
    free(json->data);
    *json = (struct json_writer){0};
}

/* Room for `bytes` more. Grows by half: a 100 MB event must not ask for 200. */
static char *reserve(struct json_writer *json, size_t bytes)
{
    if (json->capacity - json->size < bytes) {
        size_t capacity = json->capacity + json->capacity / 2 + CAPACITY_MIN;
        if (capacity - json->size < bytes)
            capacity = json->size + bytes;
        json->data = memory_resize(json->data, capacity, 1);
        json->capacity = capacity;
    }
    return json->data + json->size;
}

void json_write_raw(struct json_writer *json, struct span bytes)
{
    if (bytes.size == 0)
        return;
    memcpy(reserve(json, bytes.size), bytes.data, bytes.size);
    json->size += bytes.size;
}

void json_write_int(struct json_writer *json, int64_t number)
{
    char text[24];
    int size = snprintf(text, sizeof text, "%lld", (long long)number);
    json_write_raw(json, (struct span){text, (size_t)size});
}

static bool is_plain(unsigned char c)
{
    return c >= ' ' && c != '"' && c != '\\';
}

static void write_escape(struct json_writer *json, unsigned char c)
{
    static const char hex[] = "0123456789abcdef";
    static const char short_form[' '] = {['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n', ['\r'] = 'r', ['\t'] = 't'};
    char letter = c < ' ' ? short_form[c] : (char)c;
    if (letter)
        json_write_raw(json, (struct span){(char[]){'\\', letter}, 2});
    else
        json_write_raw(json, (struct span){(char[]){'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]}, 6});
}

void json_write_text(struct json_writer *json, struct span text)
{
    json_write_raw(json, SPAN_LITERAL("\""));
    const unsigned char *p = (const unsigned char *)text.data;
    size_t run = 0;
    for (size_t i = 0; i < text.size; i++) {
        if (is_plain(p[i]))
            continue;
        json_write_raw(json, (struct span){text.data + run, i - run});
        write_escape(json, p[i]);
        run = i + 1;
    }
    if (text.size > run)
        json_write_raw(json, (struct span){text.data + run, text.size - run});
    json_write_raw(json, SPAN_LITERAL("\""));
}

void json_write_base64(struct json_writer *json, struct span bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *in = (const unsigned char *)bytes.data;
    char *out = reserve(json, (bytes.size + 2) / 3 * 4 + 2);
    char *start = out;
    *out++ = '"';
    for (size_t i = 0; i < bytes.size; i += 3) {
        size_t left = bytes.size - i;
        uint32_t group = (uint32_t)in[i] << 16;
        if (left > 1)
            group |= (uint32_t)in[i + 1] << 8;
        if (left > 2)
            group |= in[i + 2];
        *out++ = digits[group >> 18];
        *out++ = digits[group >> 12 & 63];
        *out++ = left > 1 ? digits[group >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[group & 63] : '=';
    }
    *out++ = '"';
    json->size += (size_t)(out - start);
}

void json_write_spliced(struct json_writer *json, struct span document)
{
    size_t start = json->size;
    json_write_raw(json, document);
    for (const char *breaks = "\n\r"; *breaks && document.size > 0; breaks++) {
        char *p = json->data + start, *end = json->data + json->size;
        while ((p = memchr(p, *breaks, (size_t)(end - p))) != NULL)
            *p++ = ' ';
    }
}

void json_write_instant(struct json_writer *json, int64_t wall_us)
{
    int64_t fraction = wall_us % MICROSECONDS;
    time_t seconds = wall_us / MICROSECONDS;
    if (fraction < 0) {
        fraction += MICROSECONDS;
        seconds--;
    }
    struct tm tm;
    gmtime_r(&seconds, &tm);
    char text[64];
    int size = snprintf(text, sizeof text, "\"%04lld-%02d-%02dT%02d:%02d:%02d.%06dZ\"", 1900LL + tm.tm_year,
                        tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, (int)fraction);
    json_write_raw(json, (struct span){text, (size_t)size});
}
