/* relay/base/halving.h -- what does not pass as a whole is tried in parts, down to the one thing that is to blame, or
 * is waited for.
 *
 * Where each try takes what is there by then, the parts are a limit:
 *
 *   halving_room -> halving_failed | halving_passed -> halving_room ...
 *
 * Where the things are a list that stays as it is, both halves of what failed are tried, the first one first:
 *
 *   halving_list_begin -> (halving_list_part -> halving_list_failed | halving_list_passed)* until `count` is 0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct halving {
    size_t most; /* so many are tried at once; 0: nothing has failed, as many as there are */
};

/* How many of `count` things are tried next. */
size_t halving_room(const struct halving *halving, size_t count);

/* So many things did not pass together: next time it is one of so many `parts` of them. True: it was one alone. */
bool halving_failed(struct halving *halving, size_t tried, size_t parts);

/* Twice as many are tried next time, up to `limit`. */
void halving_passed(struct halving *halving, size_t limit);

#define HALVING_PARTS_MAX 32 /* of a list, which may have so many things as fit into 31 bits */

struct halving_part {
    size_t at, count;
};

struct halving_list {
    struct halving_part parts[HALVING_PARTS_MAX]; /* to be tried, the last one first */
    size_t count;
};

/* With no things there is nothing to be tried. */
void halving_list_begin(struct halving_list *list, size_t things);

/* What is tried next; an empty part when there is nothing. */
struct halving_part halving_list_part(const struct halving_list *list);

/* What was tried has passed, or its halves come next. True: it was one thing alone. */
void halving_list_passed(struct halving_list *list);
bool halving_list_failed(struct halving_list *list);
