/* relay/base/suggest.h -- the name somebody probably meant. */
#pragma once

#include <stddef.h>

/* The one of `names` (NULL after the last) that is nearest to `word`, or NULL when none is near: at most one slip in
 * three letters. A slip is a letter too many, missing, wrong, or swapped with its neighbour. Case is ignored. */
const char *suggest(const char *word, const char *const *names);

/* For messages: `; did you mean "NAME"?`, or empty. At most `size` bytes. Returns `ret`. */
const char *suggest_text(const char *word, const char *const *names, char *ret, size_t size);
