/* relay/commands/dead_statements.h -- the statements of `dead retry` and `dead drop` for one table.
 *
 *   dead_statements_make -> (work->with) -> dead_statements_free */
#pragma once

#include "relay/commands/dead_work.h"

/* Reads the table's columns and fills in work->with. False and *err on failure, ERROR_USAGE when --column does not fit
 * the table; dead_statements_free() then, too. */
bool dead_statements_make(struct dead_work *work, struct error *err) MUST_CHECK;
void dead_statements_free(struct dead_work *work);
