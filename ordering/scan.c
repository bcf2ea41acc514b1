#include "ordering/scan.h"

#include <string.h>

#define SPAN_START 100000
#define SPAN_MIN 2000
#define SPAN_STEP 4
#define SPAN_MAX (INT64_C(1) << 62) /* ids that the application chooses may lie anywhere */
#define FRESH_MAX 5000              /* ids that every claim walks again */
#define AGAIN_MIN_US (5 * MS_US)
#define AGAIN_MAX_US (250 * MS_US)
#define AGAIN_LATE_US (1 * SECOND_US) /* never-ending new work must not keep these waiting */
#define SLOW_US (20 * MS_US)
#define SWEEP_SPAN_MIN 500
#define SWEEP_SLOW_US (2 * MS_US)
#define SWEEP_PRICE 1000 /* the slow sweep has one part in so many of the time */
#define SWEEP_PAUSE_MAX_US (2 * SECOND_US)
#define SWEEP_BUSY_US (100 * MS_US) /* its pause when claims find something: what the sweep cost is not known then */

static const struct id_range nothing = {1, 0};

static int64_t id_add(int64_t id, int64_t by)
{
    int64_t sum;
    return __builtin_add_overflow(id, by, &sum) ? (by > 0 ? SCAN_ID_MAX : SCAN_ID_MIN) : sum;
}

static struct id_range range_union(struct id_range a, struct id_range b)
{
    return (struct id_range){a.lo < b.lo ? a.lo : b.lo, a.hi > b.hi ? a.hi : b.hi};
}

void scan_init(struct scan *scan)
{
    memset(scan, 0, sizeof *scan);
    scan->settled = scan->top = scan->passed = SCAN_ID_MIN;
    scan->again = nothing;
    scan->again_delay_us = AGAIN_MIN_US;
    scan->sweep_at = SCAN_ID_MIN;
    scan->span = SPAN_START;
    scan->sweep_span = SPAN_MIN;
}

static void gap_remove(struct scan *scan, size_t at)
{
    scan->gap_count--;
    memmove(&scan->gaps[at], &scan->gaps[at + 1], (scan->gap_count - at) * sizeof scan->gaps[0]);
}

/* Stretches that touch become one, and so does this one with a neighbour when there is no room: looking twice costs
 * time, forgetting costs an event. */
static void gap_add(struct scan *scan, struct id_range range)
{
    if (id_range_is_empty(range))
        return;
    size_t at = 0;
    while (at < scan->gap_count && id_add(scan->gaps[at].hi, 1) < range.lo)
        at++;
    while (at < scan->gap_count && scan->gaps[at].lo <= id_add(range.hi, 1)) {
        range = range_union(range, scan->gaps[at]);
        gap_remove(scan, at);
    }
    if (scan->gap_count == SCAN_GAPS_MAX) {
        size_t with = at < scan->gap_count ? at : at - 1;
        scan->gaps[with] = range_union(scan->gaps[with], range);
        return;
    }
    memmove(&scan->gaps[at + 1], &scan->gaps[at], (scan->gap_count - at) * sizeof scan->gaps[0]);
    scan->gaps[at] = range;
    scan->gap_count++;
}

/* `range` lies at one end of the gap it belongs to, or is the whole of it. */
static void gap_take(struct scan *scan, struct id_range range)
{
    for (size_t i = 0; i < scan->gap_count && !id_range_is_empty(range); i++) {
        struct id_range *gap = &scan->gaps[i];
        if (gap->lo == range.lo && gap->hi == range.hi)
            gap_remove(scan, i);
        else if (gap->lo == range.lo)
            gap->lo = range.hi + 1;
        else if (gap->hi == range.hi)
            gap->hi = range.lo - 1;
        else
            continue;
        return;
    }
}

int64_t scan_fresh_above(const struct scan *scan)
{
    return scan->settled > scan->passed ? scan->settled : scan->passed;
}

bool scan_pending(const struct scan *scan, instant_us now)
{
    return scan->gap_count > 0 || now >= scan_pending_at(scan);
}

instant_us scan_pending_at(const struct scan *scan)
{
    return id_range_is_empty(scan->again) ? INSTANT_NEVER : scan->again_at;
}

bool scan_sweep_due(const struct scan *scan, instant_us now)
{
    return !scan->swept && scan->settled != SCAN_ID_MIN && now >= scan->sweep_after;
}

bool scan_unsettled(const struct scan *scan)
{
    return !scan->known || scan->top > scan->settled;
}

/* Nothing else to do at the old end: look at the next bounded stretch of what is believed to be done. */
static void plan_sweep(struct scan *scan, instant_us now, struct scan_plan *ret)
{
    if (scan->settled == SCAN_ID_MIN || now < scan->sweep_after)
        return;
    if (scan->sweep_at > scan->settled) {
        scan->sweep_at = SCAN_ID_MIN;
        scan->swept = !scan->astray;
        scan->astray = false;
    }
    int64_t hi = id_add(scan->sweep_at < scan->first ? scan->first : scan->sweep_at, scan->sweep_span);
    ret->oldest = (struct id_range){scan->sweep_at, hi < scan->settled ? hi : scan->settled};
    ret->sweeping = true;
}

/* A bounded stretch from each end of what has not been looked at. */
static void plan_gaps(struct scan *scan, struct scan_plan *ret)
{
    struct id_range low = scan->gaps[0], high = scan->gaps[scan->gap_count - 1];
    int64_t hi = id_add(low.lo < scan->first ? scan->first : low.lo, scan->span), lo = id_add(high.hi, -scan->span);
    ret->oldest = (struct id_range){low.lo, hi < low.hi ? hi : low.hi};
    ret->newest = (struct id_range){lo > high.lo ? lo : high.lo, high.hi};
    if (ret->newest.lo <= ret->oldest.hi) {
        /* The ends meet: each id belongs to one of the two. Half of the ids that there are, not of all numbers. */
        int64_t from = ret->oldest.lo < scan->first && scan->first <= high.hi ? scan->first : ret->oldest.lo;
        uint64_t width = (uint64_t)high.hi - (uint64_t)from;
        ret->oldest.hi = (int64_t)((uint64_t)from + width / 2);
        ret->newest.lo = id_add(ret->oldest.hi, 1);
    }
    gap_take(scan, ret->oldest);
    gap_take(scan, ret->newest);
    ret->more = scan->gap_count > 0;
}

void scan_next(struct scan *scan, instant_us now, struct scan_plan *ret)
{
    *ret = (struct scan_plan){.fresh_above = scan_fresh_above(scan), .newest = nothing, .oldest = nothing};
    if (!id_range_is_empty(scan->again) && now >= scan->again_at + (scan->gap_count == 0 ? 0 : AGAIN_LATE_US)) {
        gap_add(scan, scan->again);
        scan->again = nothing;
    }
    if (scan->gap_count > 0)
        plan_gaps(scan, ret);
    else
        plan_sweep(scan, now, ret);
}

void scan_failed(struct scan *scan, const struct scan_plan *plan)
{
    if (!plan->sweeping)
        gap_add(scan, plan->oldest);
    gap_add(scan, plan->newest);
}

void scan_again(struct scan *scan, struct id_range range, instant_us at)
{
    if (id_range_is_empty(range))
        return;
    scan->again_at = id_range_is_empty(scan->again) ? at : instant_min(scan->again_at, at);
    scan->again = id_range_is_empty(scan->again) ? range : range_union(scan->again, range);
}

/* A long-running producer keeps `settled` down: what piles up below the fresh stretch gets its first look as a gap. */
static void bound_fresh(struct scan *scan)
{
    int64_t fresh = scan_fresh_above(scan);
    if (!scan->known || scan->top == SCAN_ID_MIN || id_add(fresh, FRESH_MAX) >= scan->top)
        return;
    scan->passed = scan->top - FRESH_MAX / 2;
    gap_add(scan, (struct id_range){id_add(fresh, 1), scan->passed});
}

static int64_t ids_between(int64_t lo, int64_t hi)
{
    int64_t n;
    return __builtin_sub_overflow(hi, lo, &n) ? SCAN_ID_MAX : n;
}

/* How many ids a plan's longer stretch has; those below the first one are only numbers. */
static int64_t width_of(const struct scan *scan, const struct scan_plan *plan)
{
    int64_t newest = id_range_is_empty(plan->newest) ? 0 : ids_between(plan->newest.lo, plan->newest.hi), oldest = 0;
    if (!id_range_is_empty(plan->oldest))
        oldest = ids_between(plan->oldest.lo < scan->first ? scan->first : plan->oldest.lo, plan->oldest.hi);
    return newest > oldest ? newest : oldest;
}

/* Dead rows that nobody may remove cost the sweep the same each time, and an idle relay does nothing else: it pays for
 * what a stretch took with a pause. */
static void pace_sweep(struct scan *scan, int64_t cost_us, instant_us now)
{
    bool slow = cost_us > SWEEP_SLOW_US;
    if (slow)
        scan->sweep_span =
            scan->sweep_span / SPAN_STEP > SWEEP_SPAN_MIN ? scan->sweep_span / SPAN_STEP : SWEEP_SPAN_MIN;
    else if (cost_us < SWEEP_SLOW_US / SPAN_STEP && scan->sweep_span < SPAN_MAX / SPAN_STEP)
        scan->sweep_span *= SPAN_STEP;
    scan->sweep_after = now + (slow ? SWEEP_PAUSE_MAX_US : cost_us * SWEEP_PRICE);
}

/* A claim that found nothing has only walked: its time, beyond that of the quickest claim, is the price of the span.
 * One that was slow for another reason costs one step of many: ids that lie far apart are still come to. */
static void size_span(struct scan *scan, const struct scan_plan *plan, int64_t took_us, instant_us now)
{
    if (scan->quickest_us == 0 || took_us < scan->quickest_us)
        scan->quickest_us = took_us;
    if (plan->sweeping) {
        pace_sweep(scan, took_us - scan->quickest_us, now);
        return;
    }
    if (id_range_is_empty(plan->newest) && id_range_is_empty(plan->oldest))
        return;
    if (took_us - scan->quickest_us < SLOW_US) {
        scan->span = scan->span < SPAN_MAX / SPAN_STEP ? scan->span * SPAN_STEP : SPAN_MAX;
        return;
    }
    int64_t width = width_of(scan, plan);
    scan->span = (width > 0 && width < scan->span ? width : scan->span) / SPAN_STEP;
    if (scan->span < SPAN_MIN)
        scan->span = SPAN_MIN;
}

/* Ids that a claim has no use for are kept from the claims beside it until it is back: the next one takes a few times
 * as many as this one has looked at. */
static void fit_span(struct scan *scan, const struct scan_plan *plan, const struct scan_report *report)
{
    int64_t newest = 0, oldest = 0;
    if (!id_range_is_empty(report->newest_left))
        newest = ids_between(report->newest_left.hi, plan->newest.hi);
    if (!id_range_is_empty(report->oldest_left))
        oldest = ids_between(plan->oldest.lo < scan->first ? scan->first : plan->oldest.lo, report->oldest_left.lo);
    int64_t used = newest > oldest ? newest : oldest;
    if (used > 0 && used < scan->span / SPAN_STEP)
        scan->span = used * SPAN_STEP > SPAN_MIN ? used * SPAN_STEP : SPAN_MIN;
    else if (used == 0 && scan->gap_count > 0 && scan->span < SPAN_START)
        scan->span *= 2;
}

void scan_seen(struct scan *scan, const struct scan_plan *plan, const struct scan_report *report, int64_t took_us,
               instant_us now)
{
    if (plan->sweeping)
        scan->sweep_at = id_range_is_empty(report->oldest_left) ? id_add(plan->oldest.hi, 1) : report->oldest_left.lo;
    else
        gap_add(scan, report->oldest_left);
    gap_add(scan, report->newest_left);
    if (report->seen_max > scan->top)
        scan->top = report->seen_max;
    scan->again_delay_us = report->found ? AGAIN_MIN_US : scan->again_delay_us * 2;
    if (scan->again_delay_us > AGAIN_MAX_US)
        scan->again_delay_us = AGAIN_MAX_US;
    scan_again(scan, report->missed, now + scan->again_delay_us);
    if (report->found || !id_range_is_empty(report->missed)) {
        scan->astray = true;
        scan->swept = false;
    }
    if (plan->sweeping && report->found)
        scan->sweep_after = now + SWEEP_BUSY_US;
    if (report->found)
        fit_span(scan, plan, report);
    else
        size_span(scan, plan, took_us, now);
    bound_fresh(scan);
}

static bool still_held(const struct scan_horizon *horizon, uint64_t holder)
{
    for (size_t i = 0; i < horizon->holder_count; i++)
        if (horizon->holders[i] == holder)
            return true;
    return false;
}

static void settle(struct scan *scan, int64_t to)
{
    if (to <= scan->settled)
        return;
    gap_add(scan, (struct id_range){id_add(scan->settled, scan->settled == SCAN_ID_MIN ? 0 : 1), to});
    scan->settled = to;
}

void scan_horizon(struct scan *scan, const struct scan_horizon *horizon)
{
    if (scan->known && horizon->drawn < scan->settled)
        scan_init(scan); /* the sequence was set back: nothing that is known of ids holds any more */
    bool pending = scan->known && !scan->pending_overflow;
    scan->known = true;
    scan->first = horizon->first;
    if (horizon->drawn > scan->top)
        scan->top = horizon->drawn;
    size_t kept = 0;
    for (size_t i = 0; i < scan->pending_count; i++)
        if (still_held(horizon, scan->pending[i]))
            scan->pending[kept++] = scan->pending[i];
    scan->pending_count = kept;
    if (kept == 0) {
        if (pending)
            settle(scan, scan->pending_drawn);
        /* Begin anew with what has been drawn by now. */
        scan->pending_drawn = horizon->drawn;
        scan->pending_overflow = horizon->holder_count > SCAN_HOLDERS_MAX;
        scan->pending_count = scan->pending_overflow ? 0 : horizon->holder_count;
        if (scan->pending_count > 0)
            memcpy(scan->pending, horizon->holders, scan->pending_count * sizeof scan->pending[0]);
        if (horizon->holder_count == 0)
            settle(scan, horizon->drawn);
    }
    bound_fresh(scan);
}
