/* relay/base/utf8.h -- is this text UTF-8?
 *
 * A SQL_ASCII database hands out whatever bytes somebody once stored; everything that writes JSON asks here first. */
#ifndef RELAY_BASE_UTF8_H
#define RELAY_BASE_UTF8_H

#include "relay/base/span.h"

/* As RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. Absent and empty are valid. */
bool utf8_valid(struct span text);

#endif
