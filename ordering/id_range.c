#include "ordering/id_range.h"

#include <string.h>

int64_t id_add(int64_t id, int64_t by)
{
    int64_t sum;
    return __builtin_add_overflow(id, by, &sum) ? (by > 0 ? SCAN_ID_MAX : SCAN_ID_MIN) : sum;
}

static struct id_range both(struct id_range a, struct id_range b)
{
    return (struct id_range){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

struct id_range id_range_common(struct id_range a, struct id_range b)
{
    return (struct id_range){a.lo > b.lo ? a.lo : b.lo, a.hi < b.hi ? a.hi : b.hi};
}

struct id_range id_range_below(struct id_range range, int64_t id)
{
    if (id == SCAN_ID_MIN)
        return (struct id_range){1, 0};
    return id_range_common(range, (struct id_range){SCAN_ID_MIN, id - 1});
}

struct id_range id_range_above(struct id_range range, int64_t id)
{
    if (id == SCAN_ID_MAX)
        return (struct id_range){1, 0};
    return id_range_common(range, (struct id_range){id + 1, SCAN_ID_MAX});
}

static void drop(struct id_ranges *ranges, size_t place)
{
    ranges->count--;
    memmove(&ranges->at[place], &ranges->at[place + 1], (ranges->count - place) * sizeof ranges->at[0]);
}

void id_range_widen(struct id_range *range, struct id_range by)
{
    bool empty = id_range_is_empty(*range);
    range->lo = empty || by.lo < range->lo ? by.lo : range->lo;
    range->hi = empty || by.hi > range->hi ? by.hi : range->hi;
}

bool id_ranges_hold(const struct id_ranges *ranges, int64_t id)
{
    for (size_t i = 0; i < ranges->count; i++)
        if (id_range_holds(ranges->at[i], id))
            return true;
    return false;
}

bool id_ranges_touch(const struct id_ranges *ranges, struct id_range range)
{
    for (size_t i = 0; i < ranges->count; i++)
        if (ranges->at[i].lo <= id_add(range.hi, 1) && id_add(range.lo, -1) <= ranges->at[i].hi)
            return true;
    return false;
}

void id_ranges_add(struct id_ranges *ranges, struct id_range range)
{
    if (id_range_is_empty(range))
        return;
    size_t place = 0;
    while (place < ranges->count && id_add(ranges->at[place].hi, 1) < range.lo)
        place++;
    while (place < ranges->count && ranges->at[place].lo <= id_add(range.hi, 1)) {
        range = both(range, ranges->at[place]);
        drop(ranges, place);
    }
    if (ranges->count == ID_RANGES_MAX) {
        size_t with = place < ranges->count ? place : place - 1;
        ranges->at[with] = both(ranges->at[with], range);
        return;
    }
    memmove(&ranges->at[place + 1], &ranges->at[place], (ranges->count - place) * sizeof ranges->at[0]);
    ranges->at[place] = range;
    ranges->count++;
}

void id_ranges_take(struct id_ranges *ranges, struct id_range range)
{
    for (size_t i = 0; i < ranges->count && !id_range_is_empty(range); i++) {
        struct id_range *from = &ranges->at[i];
        if (from->lo == range.lo && from->hi == range.hi)
            drop(ranges, i);
        else if (from->lo == range.lo)
            from->lo = range.hi + 1;
        else if (from->hi == range.hi)
            from->hi = range.lo - 1;
        else
            continue;
        return;
    }
}
