/* relay/base/halving.h -- rows that do not pass together are tried in parts, down to the one row that is to blame, or
 * is waited for.
 *
 * If each try takes the rows that are there by then, a limit says how many:
 *
 *   halving_room -> halving_failed | halving_succeeded -> halving_room ...
 *
 * If the rows are a list that does not change, both halves of a failed part are tried, the first one first:
 *
 *   halving_list_begin -> (halving_list_part -> halving_list_failed | halving_list_succeeded)* until `count` is 0 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct halving {
    size_t most; /* so many rows are tried at once; 0: none has failed, all are */
};

/* How many of `count` rows are tried next. */
size_t halving_room(const struct halving *halving, size_t count);

/* `tried` rows were refused together: next time `tried / divide_by` are tried. True: `tried` is 1. */
bool halving_failed(struct halving *halving, size_t tried, size_t divide_by);

/* The rows went through: twice as many are tried next time, up to `limit`. */
void halving_succeeded(struct halving *halving, size_t limit);

#define HALVING_PARTS_MAX 32 /* of a list, which may have so many rows as fit into 31 bits */

struct halving_part {
    size_t at, count;
};

struct halving_list {
    struct halving_part parts[HALVING_PARTS_MAX]; /* to be tried, the last one first */
    size_t count;
};

/* Without rows there is nothing to try. */
void halving_list_begin(struct halving_list *list, size_t row_count);

/* What is tried next; an empty part when there is nothing. */
struct halving_part halving_list_part(const struct halving_list *list);

/* The part that was tried has passed, or its halves come next. True: it was one row alone. */
void halving_list_succeeded(struct halving_list *list);
bool halving_list_failed(struct halving_list *list);
