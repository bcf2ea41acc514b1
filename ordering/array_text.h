/* ordering/array_text.h -- the elements of a PostgreSQL array in its text form: {a,"b c",""}.
 *
 * https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO; no nulls. Of more than one dimension the elements come
 * one after the other. */
#ifndef ORDERING_ARRAY_TEXT_H
#define ORDERING_ARRAY_TEXT_H

#include "relay/base/arena.h"

/* Takes the next element off `*rest`, which starts as the whole text; a copy without quotes, in the arena. False when
 * there is none. */
bool array_text_next(struct span *rest, struct arena *arena, struct span *ret);

#endif
