/* relay/commands/argument.h -- what stands on a command line and only PostgreSQL can read.
 *
 * The statement that uses it would fail, too, but with words that do not know which option it was, and maybe after
 * others have changed something. */
#pragma once

#include "relay/base/error.h"

#include <libpq-fe.h>

enum argument_kind { ARGUMENT_TIME, ARGUMENT_INTERVAL, ARGUMENT_JSON, ARGUMENT_UUID, ARGUMENT_PATTERN };

struct argument {
    const char *name; /* as in "--since" */
    enum argument_kind kind;
    const char *text; /* NULL: not given */
};

/* Asks the server about each, up to the one without a name; blocking. False and *err on failure: ERROR_USAGE, with the
 * option, the value and what is expected, when it cannot read one. */
bool argument_check(PGconn *conn, const char *command, const struct argument *arguments, struct error *err) MUST_CHECK;

/* Is it the id of an event, as its first `size` bytes, behind which there is no digit: a whole number of 64
 * bits? This one needs no server. */
bool argument_is_id(const char *text, size_t size);
