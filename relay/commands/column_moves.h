/* relay/commands/column_moves.h -- where the values of columns go that a table has no more: --column OLD=NEW.
 *
 *   struct column_moves moves = {0};  column_moves_add* -> queries -> column_moves_done */
#pragma once

#include "relay/base/error.h"

struct column_moves {
    char *from, *to; /* texts of SQL arrays of the same length: names, empty (from) or null (to) where there is none;
                        NULL: no moves */
};

/* `text` is OLD=NEW, OLD= for values that are to be left out, or =NEW where no value goes into NEW; the first '='
 * counts. False when it is none of these. */
bool column_moves_add(struct column_moves *moves, const char *text) MUST_CHECK;
void column_moves_done(struct column_moves *moves);
