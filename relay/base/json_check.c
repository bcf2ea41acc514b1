#include "relay/base/json_check.h"

#include "relay/base/utf8.h"

/* What may come next. */
enum due { DUE_VALUE, DUE_FIRST_VALUE, DUE_NAME, DUE_FIRST_NAME, DUE_COLON, DUE_COMMA, DUE_NOTHING };

struct reader {
    const char *start, *at, *end;
    bool jsonb;
    enum due due;
    size_t depth;
    char open[JSON_DEPTH_MAX]; /* '[' and '{' that are not closed */
};

static bool is_one_of(const struct reader *reader, const char *bytes)
{
    return reader->at < reader->end && *reader->at && strchr(bytes, *reader->at);
}

static bool is_digit(const struct reader *reader)
{
    return is_one_of(reader, "0123456789");
}

/* The next byte is this one, and read. */
static bool read_byte(struct reader *reader, char byte)
{
    if (reader->at == reader->end || *reader->at != byte)
        return false;
    reader->at++;
    return true;
}

static void skip_space(struct reader *reader)
{
    while (is_one_of(reader, " \t\r\n"))
        reader->at++;
}

static bool read_digits(struct reader *reader)
{
    bool any = is_digit(reader);
    while (is_digit(reader))
        reader->at++;
    return any;
}

static bool read_number(struct reader *reader)
{
    read_byte(reader, '-');
    bool good = read_byte(reader, '0') || read_digits(reader);
    if (good && read_byte(reader, '.'))
        good = read_digits(reader);
    if (good && (read_byte(reader, 'e') || read_byte(reader, 'E'))) {
        if (!read_byte(reader, '+'))
            read_byte(reader, '-');
        good = read_digits(reader);
    }
    return good;
}

static bool read_word(struct reader *reader, const char *word)
{
    size_t size = strlen(word);
    if ((size_t)(reader->end - reader->at) < size || memcmp(reader->at, word, size) != 0)
        return false;
    reader->at += size;
    return true;
}

/* The four digits of \uXXXX. */
static bool read_hex(struct reader *reader, unsigned *ret)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    *ret = 0;
    for (int i = 0; i < 4; i++, reader->at++) {
        if (!is_one_of(reader, digits))
            return false;
        unsigned value = (unsigned)(strchr(digits, *reader->at) - digits);
        *ret = *ret * 16 + (value < 16 ? value : value - 6);
    }
    return true;
}

static bool read_unicode(struct reader *reader)
{
    unsigned first, second;
    if (!read_hex(reader, &first))
        return false;
    if (!reader->jsonb || (first != 0 && (first < 0xD800 || first > 0xDFFF)))
        return true;
    return first >= 0xD800 && first < 0xDC00 && read_word(reader, "\\u") && read_hex(reader, &second) &&
           second >= 0xDC00 && second <= 0xDFFF;
}

static bool read_escape(struct reader *reader)
{
    if (read_byte(reader, 'u'))
        return read_unicode(reader);
    bool good = is_one_of(reader, "\"\\/bfnrt");
    reader->at += good;
    return good;
}

static bool read_string(struct reader *reader)
{
    if (!read_byte(reader, '"'))
        return false;
    while (reader->at < reader->end && *reader->at != '"') {
        if ((unsigned char)*reader->at < ' ')
            return false;
        if (*reader->at++ == '\\' && !read_escape(reader))
            return false;
    }
    return read_byte(reader, '"');
}

static bool open_one(struct reader *reader)
{
    if (reader->depth == JSON_DEPTH_MAX)
        return false;
    reader->open[reader->depth++] = *reader->at;
    reader->due = *reader->at++ == '[' ? DUE_FIRST_VALUE : DUE_FIRST_NAME;
    return true;
}

/* The end of what was opened last. */
static bool close_one(struct reader *reader)
{
    reader->at++;
    reader->depth--;
    reader->due = reader->depth > 0 ? DUE_COMMA : DUE_NOTHING;
    return true;
}

static bool read_value(struct reader *reader)
{
    bool good;
    if (*reader->at == '[' || *reader->at == '{')
        return open_one(reader);
    if (*reader->at == ']' && reader->due == DUE_FIRST_VALUE)
        return close_one(reader);
    if (*reader->at == '"')
        good = read_string(reader);
    else if (*reader->at == '-' || is_digit(reader))
        good = read_number(reader);
    else
        good = read_word(reader, "true") || read_word(reader, "false") || read_word(reader, "null");
    reader->due = reader->depth > 0 ? DUE_COMMA : DUE_NOTHING;
    return good;
}

/* Behind a value that stands in something. */
static bool read_comma(struct reader *reader)
{
    char opened = reader->open[reader->depth - 1];
    if (*reader->at == (opened == '[' ? ']' : '}'))
        return close_one(reader);
    reader->due = opened == '[' ? DUE_VALUE : DUE_NAME;
    return read_byte(reader, ',');
}

static bool read_next(struct reader *reader)
{
    switch (reader->due) {
    case DUE_VALUE:
    case DUE_FIRST_VALUE:
        return read_value(reader);
    case DUE_FIRST_NAME:
        if (*reader->at == '}')
            return close_one(reader);
        reader->due = DUE_COLON;
        return read_string(reader);
    case DUE_NAME:
        reader->due = DUE_COLON;
        return read_string(reader);
    case DUE_COLON:
        reader->due = DUE_VALUE;
        return read_byte(reader, ':');
    case DUE_COMMA:
        return read_comma(reader);
    case DUE_NOTHING:
        break;
    }
    return false;
}

bool json_check(struct span text, bool jsonb, struct error *err)
{
    struct reader reader = {.start = text.data, .at = text.data, .end = text.data + text.size, .jsonb = jsonb};
    bool good = utf8_valid(text);
    if (!good)
        return error_set(err, ERROR_REFUSED, "not JSON: not UTF-8");
    for (skip_space(&reader); good && reader.at < reader.end; skip_space(&reader))
        good = read_next(&reader);
    if (good && reader.due == DUE_NOTHING)
        return true;
    return error_set(err, ERROR_REFUSED, "not JSON%s: byte %zu of %zu", jsonb ? " that jsonb takes" : "",
                     (size_t)(reader.at - reader.start) + 1, text.size);
}
