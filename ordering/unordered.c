/* DESIGN. Events that wait for nobody: each is locked by itself, as a row (FOR UPDATE SKIP LOCKED) or by an advisory
 * lock on its id. As in per_key.c statements lock, a section each, and the next one, whose snapshot is younger than the
 * locks, reads: what an earlier holder has made to wait is not taken for new.
 *
 * Without a priority events are taken oldest first, by the ids that scan.c says to look at. With one, the oldest have a
 * share of each claim, so that none starves, and what scan.c knows stays complete. The other places go to the most
 * urgent: of what is new and, when there is more than a claim takes, of the index on (priority, id). There a claim goes
 * on where the one before has stopped, because at the very top lie the dead entries of what was most urgent, and what
 * is delayed. From time to time, at a bounded part of all time, one looks from the very top: whose priority was raised
 * is found then. All this is only about who comes first: an event that the look at the top passes over is found by its
 * id. */
#include "ordering/claim_sections.h"
#include "ordering/event_row.h"
#include "ordering/strategy.h"
#include "sql_text.h"

#include <stdlib.h>

#define TOP_MIN_US (50 * MS_US)
#define TOP_PRICE 10 /* looks from the very top have one part in so many of the time */

struct unordered {
    struct strategy base;
    struct guarded_text read;
    struct claim_sections sections;
    int64_t top_priority, top_id; /* where the next claim goes on, */
    instant_us top_at;            /* until one looks from the very top */
    bool backlog;                 /* the last claim has not come to the end of what there is */
};

static void unordered_close(struct ordering *o)
{
    struct unordered *un = (struct unordered *)o;
    claim_sections_done(&un->sections);
    guarded_text_done(&un->read);
    strategy_done(&un->base);
    free(un);
}

static struct ordering *unordered_open(const struct ordering_options *options, struct error *err)
{
    struct unordered *un = memory_new(sizeof *un);
    enum horizon_floor floor = options->priority ? FLOOR_EVENTS : FLOOR_NONE;
    un->top_priority = PRIORITY_LEAST;
    if (strategy_init(&un->base, &ordering_unordered, options, floor, err) &&
        claim_sections_init_events(&un->sections, &un->base.options, &un->base.rows, err) &&
        guarded_text_init(&un->read, sql_unordered_read, options->variables, options->guarded, err)) {
        if (!options->priority)
            un->base.options.oldest_share = 100;
        return &un->base.ordering;
    }
    unordered_close(&un->base.ordering);
    return NULL;
}

/* The oldest come first: where the two stretches are one it is looked at as such, and else the newer one stays. */
static void look_at_the_oldest(struct scan_plan *scan, struct scan_report *report)
{
    if (id_range_is_empty(scan->newest))
        return;
    if (!scan->sweeping && scan->newest.lo - 1 == scan->oldest.hi)
        scan->oldest.hi = scan->newest.hi;
    else
        report->newest_left = scan->newest;
    scan->newest = (struct id_range){1, 0};
}

/* Without a backlog everything is among the newest and the oldest. */
static void plan_top(const struct unordered *un, struct claim_plan *plan, instant_us now)
{
    bool backlog =
        un->base.options.priority && un->backlog && !id_range_is_empty(plan->scan.oldest) && !plan->scan.sweeping;
    plan->from_top = backlog && now >= un->top_at;
    plan->top_priority = plan->from_top ? INT64_MAX : un->top_priority;
    plan->top_id = plan->from_top ? SCAN_ID_MIN : un->top_id;
    plan->top = backlog && plan->top_priority != PRIORITY_LEAST;
}

static size_t unordered_claim(struct ordering *o, const struct claim_request *request, instant_us now,
                              struct arena *arena, struct statement *ret, struct claim_plan *ret_plan)
{
    struct unordered *un = (struct unordered *)o;
    *ret_plan = (struct claim_plan){.rows_limit = un->base.rows.limit,
                                    .key_limit = 1,
                                    .guarded = request->unreadable_count > 0,
                                    .report = scan_saw_nothing,
                                    .floor = un->base.horizon.floor};
    scan_next(&un->base.scan, now, &ret_plan->scan);
    look_at_the_oldest(&ret_plan->scan, &ret_plan->report);
    plan_top(un, ret_plan, now);
    if (ret_plan->guarded)
        *ret++ = ordering_guard(request->unreadable, request->unreadable_count, arena);
    claim_sections_ask(&un->sections, request, ret_plan, arena, ret);
    struct statement *read = &ret[ret_plan->section_count];
    *read = statement_of(guarded_text_of(&un->read, ret_plan->guarded));
    read->by_row = true;
    statement_add_text(read, un->base.options.queue);
    statement_add_int(read, arena, ret_plan->rows_limit);
    read[1] = statement_of(sql_claim_rest);
    return ret_plan->section_count + 2 + ret_plan->guarded;
}

/* Somebody may insert an id that was long settled. */
static bool read_locks(struct unordered *un, struct claim_plan *plan, size_t index, const PGresult *res,
                       struct arena *arena, struct error *err)
{
    if (!claim_section_locked(&un->sections, plan, index, res, arena, err))
        return false;
    for (size_t i = 0; i < plan->low.count; i++)
        if (plan->low.at[i].ids.lo < un->base.horizon.floor)
            horizon_lower(&un->base.horizon, plan->low.at[i].ids.lo);
    return true;
}

static bool unordered_claimed(struct ordering *o, struct claim_plan *plan, size_t index, const PGresult *res,
                              const struct claim_intake *intake, struct error *err)
{
    struct unordered *un = (struct unordered *)o;
    if (index < plan->guarded)
        return true;
    index -= plan->guarded;
    if (index < plan->section_count)
        return read_locks(un, plan, index, res, intake->arena, err);
    for (int row = 0; row < PQntuples(res); row++) {
        plan->rows++;
        if (!event_row_read(&un->base.options, res, row, intake, err))
            return false;
    }
    return true;
}

static void go_on_from_the_top(struct unordered *un, const struct claim_plan *plan, int64_t took_us, instant_us now)
{
    if (plan->top) { /* else one beside it may have gone on since */
        un->top_priority = plan->top_priority;
        un->top_id = plan->top_id;
    }
    if (plan->from_top)
        un->top_at = now + (took_us * TOP_PRICE > TOP_MIN_US ? took_us * TOP_PRICE : TOP_MIN_US);
    if (plan->truncated)
        un->top_at = now;
}

static void unordered_claim_done(struct ordering *o, struct claim_plan *plan, int64_t took_us, instant_us now)
{
    struct unordered *un = (struct unordered *)o;
    struct scan_report report = plan->report;
    report.found = plan->events > 0;
    scan_seen(&un->base.scan, &plan->scan, &report, took_us, now);
    bool full = plan->rows >= plan->rows_limit;
    plan->truncated = full || plan->spilled;
    if (plan->truncated)
        scan_truncated(&un->base.scan, &plan->scan, &report, now);
    bool left = !id_range_is_empty(report.oldest_left) || !id_range_is_empty(report.newest_left);
    un->backlog = plan->truncated || (left && !plan->scan.sweeping);
    go_on_from_the_top(un, plan, took_us, now);
    claim_rows_done(&un->base.rows, plan);
}

static void unordered_claim_failed(struct ordering *o, const struct claim_plan *plan)
{
    struct unordered *un = (struct unordered *)o;
    struct scan_plan all = plan->scan;
    all.newest = plan->report.newest_left;
    scan_failed(&un->base.scan, &all);
    claim_rows_failed(&un->base.rows, plan);
    un->top_at = 0;
}

static void unordered_released(struct ordering *o, int64_t lo, int64_t hi, instant_us at)
{
    struct unordered *un = (struct unordered *)o;
    strategy_released(o, lo, hi, at);
    un->top_at = instant_min(un->top_at, at);
}

const struct ordering_type ordering_unordered = {
    .keyless = true,
    .open = unordered_open,
    .close = unordered_close,
    .claim = unordered_claim,
    .claimed = unordered_claimed,
    .claim_done = unordered_claim_done,
    .claim_failed = unordered_claim_failed,
    .hold = strategy_hold,
    .settle = strategy_settle,
    .settled = strategy_settled,
    .released = unordered_released,
    .probe = strategy_probe,
    .probed = strategy_probed,
    .wants_probe = strategy_wants_probe,
    .forget = strategy_forget,
    .peek = strategy_peek,
    .inhabited = strategy_inhabited,
    .pending = strategy_pending,
    .pending_at = strategy_pending_at,
    .sweep_due = strategy_sweep_due,
};
