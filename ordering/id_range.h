/* ordering/id_range.h -- stretches of ids, and a few of them at a time. */
#ifndef ORDERING_ID_RANGE_H
#define ORDERING_ID_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCAN_ID_MIN INT64_MIN
#define SCAN_ID_MAX INT64_MAX
#define ID_RANGES_MAX 32

/* Inclusive; empty when lo > hi. */
struct id_range {
    int64_t lo, hi;
};

/* Ascending, disjoint, and none of them touches another. */
struct id_ranges {
    struct id_range at[ID_RANGES_MAX];
    size_t count;
};

static inline bool id_range_is_empty(struct id_range range)
{
    return range.lo > range.hi;
}

static inline bool id_range_holds(struct id_range range, int64_t id)
{
    return range.lo <= id && id <= range.hi;
}

/* Stops at the least and the greatest one. */
int64_t id_add(int64_t id, int64_t by);

struct id_range id_range_common(struct id_range a, struct id_range b);

/* What of a range is less or greater than this. */
struct id_range id_range_below(struct id_range range, int64_t id);
struct id_range id_range_above(struct id_range range, int64_t id);

/* So that all of `by` is in it, too. */
void id_range_widen(struct id_range *range, struct id_range by);

bool id_ranges_hold(const struct id_ranges *ranges, int64_t id);

/* Added, `range` becomes one with one of them. */
bool id_ranges_touch(const struct id_ranges *ranges, struct id_range range);

/* When there is no room it becomes one with a neighbour: then they have ids that nobody has added. */
void id_ranges_add(struct id_ranges *ranges, struct id_range range);

/* `range` lies at one end of the stretch it belongs to, or is the whole of it. */
void id_ranges_take(struct id_ranges *ranges, struct id_range range);

#endif
