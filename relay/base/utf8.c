#include "relay/base/utf8.h"

#include <stdint.h>

/* What may follow a lead byte: how many bytes, and the range of the first of them, which is where RFC 3629 shuts out
 * overlong forms (E0, F0), surrogates (ED) and what lies above U+10FFFF (F4). */
struct lead {
    unsigned char from, to;
    unsigned char tail;
    unsigned char second_from, second_to;
};

static const struct lead leads[] = {
    {0xC2, 0xDF, 1, 0x80, 0xBF}, {0xE0, 0xE0, 2, 0xA0, 0xBF}, {0xE1, 0xEC, 2, 0x80, 0xBF}, {0xED, 0xED, 2, 0x80, 0x9F},
    {0xEE, 0xEF, 2, 0x80, 0xBF}, {0xF0, 0xF0, 3, 0x90, 0xBF}, {0xF1, 0xF3, 3, 0x80, 0xBF}, {0xF4, 0xF4, 3, 0x80, 0x8F},
};

/* Bytes of the sequence at `p`, 0 if it is not one. */
static size_t sequence_bytes(const unsigned char *p, size_t left)
{
    for (size_t i = 0; i < sizeof leads / sizeof leads[0]; i++) {
        const struct lead *lead = &leads[i];
        if (*p < lead->from || *p > lead->to)
            continue;
        if (left <= lead->tail || p[1] < lead->second_from || p[1] > lead->second_to)
            return 0;
        for (size_t k = 2; k <= lead->tail; k++)
            if ((p[k] & 0xC0) != 0x80)
                return 0;
        return (size_t)lead->tail + 1;
    }
    return 0;
}

bool utf8_valid(struct span text)
{
    const unsigned char *p = (const unsigned char *)text.data;
    size_t left = text.size;
    while (left > 0) {
        uint64_t eight;
        size_t step = 1;
        if (left >= sizeof eight && (memcpy(&eight, p, sizeof eight), (eight & UINT64_C(0x8080808080808080)) == 0))
            step = sizeof eight;
        else if (*p >= 0x80)
            step = sequence_bytes(p, left);
        if (step == 0)
            return false;
        p += step;
        left -= step;
    }
    return true;
}

size_t utf8_char(struct span text)
{
    const unsigned char *p = (const unsigned char *)text.data;
    if (text.size == 0)
        return 0;
    return *p < 0x80 ? 1 : sequence_bytes(p, text.size);
}

size_t utf8_fit(struct span text, size_t max)
{
    if (text.size <= max)
        return text.size;
    size_t fit = max;
    while (fit > 0 && max - fit < 3 && ((unsigned char)text.data[fit] & 0xC0) == 0x80)
        fit--;
    /* Three in a row that only continue: not UTF-8, so there is nothing to keep whole. */
    return ((unsigned char)text.data[fit] & 0xC0) == 0x80 ? max : fit;
}
