/* relay/commands/column_moves.h -- where the values of columns go that a table has no more: --column OLD=NEW.
 *
 *   struct column_moves moves = {0};  column_moves_add* -> queries -> column_moves_done */
#pragma once

#include "relay/base/error.h"

struct column_moves {
    char *from, *to; /* texts of SQL arrays of the same length; NULL: there are none */
};

/* `text` is OLD=NEW, or OLD= for values that are to be left out; the first '=' counts. False when it is neither. */
bool column_moves_add(struct column_moves *moves, const char *text) MUST_CHECK;
void column_moves_done(struct column_moves *moves);
