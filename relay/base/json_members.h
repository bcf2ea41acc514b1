/* relay/base/json_members.h -- the members of a JSON object, each as it is written.
 *
 *   json_check -> json_members_begin -> json_members_next ... -> json_unescape, json_compact
 *
 * Nothing is turned into a number and back: JSON has numbers that no type of C has, and a double is not always written
 * as it was read. Pure. All texts here are what json_check() takes, and parts of it. */
#pragma once

#include "relay/base/error.h"
#include "relay/base/span.h"

struct json_members {
    const char *at, *end; /* what is not read yet */
};

/* False when `text` is something else than an object; *ret is then untouched. It borrows `text`. */
bool json_members_begin(struct span text, struct json_members *ret) MUST_CHECK;

/* The next member: its name with the quotes, and its value. False when there is none; both are then untouched. */
bool json_members_next(struct json_members *members, struct span *ret_name, struct span *ret_value) MUST_CHECK;

/* The characters of a string, which is given with its quotes: at most as many bytes as there are between them. False
 * when an escape is half of a surrogate pair, which is no character; what `to` has then is of no use. */
bool json_unescape(struct span string, char *to, size_t *ret_size) MUST_CHECK;

/* The same value without space between its tokens; returns its size, which is not larger. */
size_t json_compact(struct span value, char *to);
