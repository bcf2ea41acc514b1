#include "relay/base/json_members.h"

#include <stdlib.h>

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static const char *skip_space(const char *at, const char *end)
{
    while (at < end && is_space(*at))
        at++;
    return at;
}

/* `at` is its first quote. */
static const char *skip_string(const char *at)
{
    for (at++; *at != '"'; at++)
        at += *at == '\\'; /* what follows is not the end */
    return at + 1;
}

/* Ends before the comma or brace that follows. */
static const char *skip_value(const char *at, const char *end)
{
    size_t depth = 0;
    while (at < end && (depth > 0 || (*at != ',' && *at != '}'))) {
        if (*at == '"') {
            at = skip_string(at);
            continue;
        }
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at++;
    }
    return at;
}

bool json_members_begin(struct span text, struct json_members *ret)
{
    const char *end = text.data + text.size, *at = skip_space(text.data, end);
    if (at == end || *at != '{')
        return false;
    *ret = (struct json_members){at, end};
    return true;
}

bool json_members_next(struct json_members *members, struct span *ret_name, struct span *ret_value)
{
    /* At the object's brace or at the comma behind the member before. */
    const char *end = members->end, *name = skip_space(members->at + 1, end);
    if (*members->at == '}' || *name == '}')
        return false;
    const char *name_end = skip_string(name);
    const char *value = skip_space(skip_space(name_end, end) + 1, end); /* behind the colon */
    const char *value_end = members->at = skip_value(value, end);
    while (is_space(value_end[-1]))
        value_end--;
    *ret_name = (struct span){name, (size_t)(name_end - name)};
    *ret_value = (struct span){value, (size_t)(value_end - value)};
    return true;
}

/* The four digits of \uXXXX. */
static unsigned hex_at(const char *at)
{
    const char digits[5] = {at[0], at[1], at[2], at[3], '\0'};
    return (unsigned)strtoul(digits, NULL, 16);
}

static char *put_utf8(char *to, unsigned c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *to++ = (char)(0xE0 | c >> 12);
        } else {
            *to++ = (char)(0xF0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 0x3F));
        }
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
    }
    *to++ = (char)(0x80 | (c & 0x3F));
    return to;
}

/* `*at` is behind \u. False: half of a pair. */
static bool read_unicode(const char **at, unsigned *ret)
{
    unsigned first = hex_at(*at);
    *at += 4;
    *ret = first;
    if (first < 0xD800 || first > 0xDFFF)
        return true;
    if (first > 0xDBFF || (*at)[0] != '\\' || (*at)[1] != 'u')
        return false;
    unsigned second = hex_at(*at + 2);
    *at += 6;
    *ret = 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    return second >= 0xDC00 && second <= 0xDFFF;
}

static char short_form(char letter)
{
    static const char forms[] = {['b'] = '\b', ['f'] = '\f', ['n'] = '\n', ['r'] = '\r', ['t'] = '\t'};
    char form = (size_t)letter < sizeof forms ? forms[(size_t)letter] : '\0';
    return form ? form : letter; /* a quote, a slash or a backslash */
}

bool json_unescape(struct span string, char *to, size_t *ret_size)
{
    const char *at = string.data + 1, *end = string.data + string.size - 1;
    char *out = to;
    while (at < end) {
        unsigned c;
        if (*at != '\\') {
            *out++ = *at++;
        } else if (at[1] != 'u') {
            *out++ = short_form(at[1]);
            at += 2;
        } else {
            at += 2;
            if (!read_unicode(&at, &c))
                return false;
            out = put_utf8(out, c);
        }
    }
    *ret_size = (size_t)(out - to);
    return true;
}

size_t json_compact(struct span value, char *to)
{
    const char *at = value.data, *end = value.data + value.size;
    char *out = to;
    while (at < end) {
        const char *next = *at == '"' ? skip_string(at) : at + 1;
        if (!is_space(*at)) {
            memcpy(out, at, (size_t)(next - at));
            out += next - at;
        }
        at = next;
    }
    return (size_t)(out - to);
}
