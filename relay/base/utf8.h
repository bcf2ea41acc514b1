/* relay/base/utf8.h -- is this text UTF-8?
 *
 * A SQL_ASCII database hands out whatever bytes somebody once stored; everything that writes JSON asks here first. */
#pragma once

#include "relay/base/span.h"

/* As RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. Absent and empty are valid. */
bool utf8_valid(struct span text);

/* Bytes of the character that `text` starts with, 1 to 4; 0 if that is not UTF-8 or `text` is empty. */
size_t utf8_char(struct span text);

/* How many of the first `max` bytes of `text` to take so that no character is cut in two. */
size_t utf8_fit(struct span text, size_t max);
