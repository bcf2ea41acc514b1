/* relay/base/json_check.h -- would PostgreSQL take this text for JSON?
 *
 * A statement that writes many rows fails for all of them when one is not what its column takes, so each is looked at
 * before. What only the database can know, a number that is too large for jsonb, it says itself. */
#pragma once

#include "relay/base/error.h"
#include "relay/base/span.h"

/* Deeper is not taken: the server has a limit, too, which depends on its stack. */
#define JSON_DEPTH_MAX 1000

/* `jsonb`: characters are stored and not their escapes, so there is no \u0000, and no half of a surrogate pair. False
 * and *err (ERROR_REFUSED) with the first byte that is wrong. */
bool json_check(struct span text, bool jsonb, struct error *err) MUST_CHECK;
