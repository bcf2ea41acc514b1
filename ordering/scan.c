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
#define QUICKEST_AGES 256 /* the server may be slower by now: else each claim would pass for a slow one, for ever */
#define SWEEP_SPAN_MIN 500
#define SWEEP_SLOW_US (2 * MS_US)
#define SWEEP_PRICE 1000 /* a quick stretch has one part in so many of the time; a slow one pauses as below */
#define SWEEP_PAUSE_MAX_US (2 * SECOND_US)
#define SWEEP_BUSY_US (100 * MS_US) /* its pause when claims find something: what the sweep cost is not known then */
#define SWEEP_BESIDE_US (1 * SECOND_US) /* its pause while there is a backlog */

static const struct id_range nothing = {1, 0};

const struct scan_report scan_saw_nothing = {
    .newest_left = {1, 0}, .oldest_left = {1, 0}, .seen_max = SCAN_ID_MIN, .seen_min = SCAN_ID_MIN, .missed = {1, 0}};

void scan_init(struct scan *scan)
{
    memset(scan, 0, sizeof *scan);
    scan->settled = scan->top = scan->passed = scan->drawn = scan->top_then = SCAN_ID_MIN;
    scan->again_delay_us = AGAIN_MIN_US;
    scan->sweep_at = SCAN_ID_MIN;
    scan->span = SPAN_START;
    scan->sweep_span = SPAN_MIN;
}

int64_t scan_fresh_above(const struct scan *scan)
{
    return scan->settled > scan->passed ? scan->settled : scan->passed;
}

bool scan_pending(const struct scan *scan, instant_us now)
{
    return scan->gaps.count > 0 || now >= scan_pending_at(scan);
}

instant_us scan_pending_at(const struct scan *scan)
{
    return scan->again.count > 0 ? scan->again_at : INSTANT_NEVER;
}

bool scan_sweep_due(const struct scan *scan, instant_us now)
{
    return !scan->swept && scan->settled != SCAN_ID_MIN && now >= scan->sweep_after;
}

bool scan_unsettled(const struct scan *scan)
{
    return !scan->known || scan->top > scan->settled;
}

static int64_t ids_between(int64_t lo, int64_t hi)
{
    int64_t n;
    return __builtin_sub_overflow(hi, lo, &n) ? SCAN_ID_MAX : n;
}

int64_t scan_unsettled_ids(const struct scan *scan)
{
    return scan->known ? ids_between(scan->settled, scan->top) : SCAN_ID_MAX;
}

/* The next bounded stretch of what is believed to be done. */
static void plan_sweep(struct scan *scan, struct scan_plan *ret)
{
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
    struct id_range low = scan->gaps.at[0], high = scan->gaps.at[scan->gaps.count - 1];
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
    id_ranges_take(&scan->gaps, ret->oldest);
    id_ranges_take(&scan->gaps, ret->newest);
    ret->more = scan->gaps.count > 0;
}

void scan_next(struct scan *scan, instant_us now, struct scan_plan *ret)
{
    *ret = (struct scan_plan){
        .fresh_above = scan_fresh_above(scan), .newest = nothing, .oldest = nothing, .settled = scan->settled};
    if (scan->again.count > 0 && now >= scan->again_at + (scan->gaps.count == 0 ? 0 : AGAIN_LATE_US)) {
        for (size_t i = 0; i < scan->again.count; i++)
            id_ranges_add(&scan->gaps, scan->again.at[i]);
        scan->again.count = 0;
    }
    bool beside = scan->gaps.count > 0;
    if (beside)
        plan_gaps(scan, ret);
    if (!ret->more || scan->sweep_beside == 0) /* no backlog: that of what is left to look at has to last */
        scan->sweep_beside = now + SWEEP_BESIDE_US;
    if (scan->settled == SCAN_ID_MIN || now < scan->sweep_after || (beside && now < scan->sweep_beside))
        return;
    if (beside) /* the other end goes on meanwhile */
        id_ranges_add(&scan->gaps, ret->oldest);
    scan->sweep_beside = now + SWEEP_BESIDE_US;
    plan_sweep(scan, ret);
}

void scan_failed(struct scan *scan, const struct scan_plan *plan)
{
    if (!plan->sweeping)
        id_ranges_add(&scan->gaps, plan->oldest);
    id_ranges_add(&scan->gaps, plan->newest);
}

void scan_again(struct scan *scan, struct id_range range, instant_us at)
{
    if (id_range_is_empty(range))
        return;
    scan->again_at = scan->again.count == 0 ? at : instant_min(scan->again_at, at);
    id_ranges_add(&scan->again, range);
}

void scan_truncated(struct scan *scan, const struct scan_plan *plan, const struct scan_report *report, instant_us now)
{
    bool any = report->seen_max != SCAN_ID_MIN; /* else it was of keys that were asked for by name */
    struct id_range seen = {any ? report->seen_min : SCAN_ID_MIN, any ? report->seen_max : SCAN_ID_MAX};
    id_ranges_add(&scan->gaps, id_range_common(plan->newest, seen));
    if (plan->sweeping)
        scan_again(scan, id_range_common(plan->oldest, seen), now);
    else
        id_ranges_add(&scan->gaps, id_range_common(plan->oldest, seen));
    if (any && seen.hi > plan->fresh_above)
        scan_again(scan, id_range_common((struct id_range){plan->fresh_above + 1, SCAN_ID_MAX}, seen), now);
}

/* A long-running producer keeps `settled` down: what piles up below the fresh stretch gets its first look as a gap. An
 * id that somebody has chosen himself, far above what has been drawn, says nothing of where the others are. */
static void bound_fresh(struct scan *scan, int64_t drawn)
{
    int64_t fresh = scan_fresh_above(scan);
    if (drawn == SCAN_ID_MIN || id_add(fresh, FRESH_MAX) >= drawn)
        return;
    scan->passed = drawn - FRESH_MAX / 2;
    id_ranges_add(&scan->gaps, (struct id_range){id_add(fresh, 1), scan->passed});
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
    else
        scan->quickest_us += (took_us - scan->quickest_us) / QUICKEST_AGES;
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
    else if (used == 0 && scan->gaps.count > 0 && scan->span < SPAN_START)
        scan->span *= 2;
}

/* In each stretch by itself: what lies between them is not looked at for what one key keeps. */
static void again_missed(struct scan *scan, const struct scan_plan *plan, struct id_range missed, instant_us at)
{
    const struct id_range looked_at[] = {plan->oldest, plan->newest, {id_add(plan->fresh_above, 1), SCAN_ID_MAX}};
    bool lo = false, hi = false;
    for (size_t i = 0; i < sizeof looked_at / sizeof looked_at[0]; i++) {
        scan_again(scan, id_range_common(missed, looked_at[i]), at);
        lo = lo || id_range_holds(looked_at[i], missed.lo);
        hi = hi || id_range_holds(looked_at[i], missed.hi);
    }
    if (!lo || !hi)
        scan_again(scan, missed, at);
}

void scan_seen(struct scan *scan, const struct scan_plan *plan, const struct scan_report *report, int64_t took_us,
               instant_us now)
{
    if (plan->sweeping)
        scan->sweep_at = id_range_is_empty(report->oldest_left) ? id_add(plan->oldest.hi, 1) : report->oldest_left.lo;
    else
        id_ranges_add(&scan->gaps, report->oldest_left);
    id_ranges_add(&scan->gaps, report->newest_left);
    if (report->seen_max > scan->top)
        scan->top = report->seen_max;
    scan->again_delay_us = report->found ? AGAIN_MIN_US : scan->again_delay_us * 2;
    if (scan->again_delay_us > AGAIN_MAX_US)
        scan->again_delay_us = AGAIN_MAX_US;
    again_missed(scan, plan, report->missed, now + scan->again_delay_us);
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
}

static const struct scan_holder *find_holder(const struct scan *scan, uint64_t hash)
{
    for (size_t i = 0; i < scan->holder_count; i++)
        if (scan->holders[i].hash == hash)
            return &scan->holders[i];
    return NULL;
}

static bool still_held(const struct scan_horizon *horizon, uint64_t hash)
{
    for (size_t i = 0; i < horizon->holder_count; i++)
        if (horizon->holders[i] == hash)
            return true;
    return false;
}

static int64_t id_after(int64_t id)
{
    return id_add(id, id == SCAN_ID_MIN ? 0 : 1);
}

/* What the last horizon did not name has drawn nothing up to where ids had been drawn then. */
static void note_holders(struct scan *scan, const struct scan_horizon *horizon)
{
    struct scan_holder now[SCAN_HOLDERS_MAX];
    for (size_t i = 0; i < horizon->holder_count; i++) {
        const struct scan_holder *known = find_holder(scan, horizon->holders[i]);
        now[i] = (struct scan_holder){horizon->holders[i], known ? known->above : scan->drawn};
    }
    /* One that has ended has shown ids that may have been passed. */
    for (size_t i = 0; i < scan->holder_count; i++)
        if (scan->passed > scan->holders[i].above && !still_held(horizon, scan->holders[i].hash))
            id_ranges_add(&scan->gaps, (struct id_range){id_after(scan->holders[i].above), scan->passed});
    scan->holder_count = horizon->holder_count;
    memcpy(scan->holders, now, scan->holder_count * sizeof now[0]);
}

/* Nobody can show an id any more that is not greater than what the first of the holders may have drawn. */
static void settle(struct scan *scan, int64_t drawn)
{
    int64_t to = drawn;
    for (size_t i = 0; i < scan->holder_count; i++)
        to = scan->holders[i].above < to ? scan->holders[i].above : to;
    if (to <= scan->settled)
        return;
    id_ranges_add(&scan->gaps, (struct id_range){id_after(scan->settled), to});
    scan->settled = to;
}

/* What was seen before the last horizon had been drawn before this one, if it was drawn at all. */
static void correct_top(struct scan *scan, int64_t drawn)
{
    if (scan->top_then > drawn || drawn > scan->top)
        scan->top = drawn;
    scan->top_then = scan->top;
}

void scan_horizon(struct scan *scan, const struct scan_horizon *horizon)
{
    if (scan->known && horizon->drawn < scan->settled)
        scan_init(scan); /* the sequence was set back: nothing that is known of ids holds any more */
    scan->known = true;
    scan->first = horizon->first;
    correct_top(scan, horizon->drawn);
    if (horizon->holder_count <= SCAN_HOLDERS_MAX) { /* else it proves nothing: a calmer one will */
        note_holders(scan, horizon);
        settle(scan, horizon->drawn);
        scan->drawn = horizon->drawn;
    }
    bound_fresh(scan, horizon->drawn);
}
