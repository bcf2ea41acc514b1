#include "relay/base/suggest.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define WORD_MAX 64 /* longer words are nobody's typing slip */

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

static int lower(const char *text, size_t i)
{
    return tolower((unsigned char)text[i]);
}

/* Optimal string alignment distance. Three rows are enough: a swap looks back two. */
static size_t distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    size_t rows[3][WORD_MAX + 1];
    for (size_t j = 0; j <= b_size; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_size; i++) {
        size_t *row = rows[i % 3], *above = rows[(i - 1) % 3];
        const size_t *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_size; j++) {
            size_t wrong = lower(a, i - 1) != lower(b, j - 1);
            row[j] = least(above[j] + 1, row[j - 1] + 1, above[j - 1] + wrong);
            if (i > 1 && j > 1 && lower(a, i - 1) == lower(b, j - 2) && lower(a, i - 2) == lower(b, j - 1) &&
                two_above[j - 2] + 1 < row[j])
                row[j] = two_above[j - 2] + 1;
        }
    }
    return rows[a_size % 3][b_size];
}

const char *suggest(const char *word, const char *const *names)
{
    size_t word_size = strlen(word), best = SIZE_MAX;
    const char *ret = NULL;
    if (word_size == 0 || word_size > WORD_MAX)
        return NULL;
    for (size_t i = 0; names[i]; i++) {
        size_t name_size = strlen(names[i]);
        if (name_size > WORD_MAX)
            continue;
        size_t slips = distance(word, word_size, names[i], name_size);
        size_t longer = word_size > name_size ? word_size : name_size;
        if (slips < best && slips * 3 <= longer) {
            best = slips;
            ret = names[i];
        }
    }
    return ret;
}

const char *suggest_text(const char *word, const char *const *names, char *ret, size_t size)
{
    const char *name = suggest(word, names);
    ret[0] = '\0';
    if (name)
        snprintf(ret, size, "; did you mean \"%s\"?", name);
    return ret;
}
