/* DESIGN. One advisory transaction lock a key, taken by one statement; the key's oldest events, read by the next, whose
 * snapshot is younger than the locks. PostgreSQL makes a commit visible before it releases the committer's locks, so
 * what an earlier holder has deleted is not read again. The two statements travel in one round: the first leaves
 * the locked keys in a transaction-local setting for the second. scan.c says which ids to look at.
 *
 * The horizon's floor keeps the reads off dead index entries at the front of a key's range. It is not a hint: an event
 * below it would be passed over and break the order of its key. A key that waits is read from its own head on, wherever
 * that is, and so is one that was left behind: they hold no floor down. */
#include "ordering/claim_fresh.h"
#include "ordering/claim_sections.h"
#include "ordering/event_row.h"
#include "ordering/lease_sql.h"
#include "ordering/result.h"
#include "ordering/strategy.h"
#include "sql_text.h"

#include <stdlib.h>

#define FEW 2 /* events of a key, on the average */
#define FEW_ROWS 4
#define WARY_CLAIMS 32

struct per_key {
    struct strategy base;
    struct guarded_text read, read_few;
    struct claim_sections sections;
    struct claim_fresh fresh;
    struct lease_sql lease;
    bool few;     /* the keys that were locked last had few events each, and all of them were returned */
    int64_t wary; /* claims to go before few are expected again */
};

static void per_key_close(struct ordering *o)
{
    struct per_key *pk = (struct per_key *)o;
    guarded_text_done(&pk->read);
    guarded_text_done(&pk->read_few);
    claim_sections_done(&pk->sections);
    claim_fresh_done(&pk->fresh);
    lease_sql_done(&pk->lease);
    strategy_done(&pk->base);
    free(pk);
}

static struct ordering *per_key_open(const struct ordering_options *options, struct error *err)
{
    struct per_key *pk = memory_new(sizeof *pk);
    const struct sql_variable *v = options->variables, *guarded = options->guarded;
    bool ok = strategy_init(&pk->base, &ordering_per_key, options, FLOOR_KEYS, err) &&
              guarded_text_init(&pk->read, sql_per_key_read, v, guarded, err) &&
              guarded_text_init(&pk->read_few, sql_per_key_read_few, v, guarded, err) &&
              claim_sections_init(&pk->sections, &pk->base.options, &pk->base.rows, err) &&
              claim_fresh_init(&pk->fresh, &pk->base.options, err) && lease_sql_init(&pk->lease, options, err);
    if (ok)
        return &pk->base.ordering;
    per_key_close(&pk->base.ordering);
    return NULL;
}

/* Keys that are known to have more events are no keys of few. */
static struct statement read_statement(struct per_key *pk, const struct claim_request *request, struct arena *arena,
                                       struct claim_plan *plan)
{
    plan->few = pk->few && pk->wary == 0 && request->follow_key_count == 0 && !request->behind;
    if (plan->few && plan->rows_limit > (request->max_keys + 1) * FEW_ROWS)
        plan->rows_limit = (request->max_keys + 1) * FEW_ROWS;
    struct statement read = statement_of(guarded_text_of(plan->few ? &pk->read_few : &pk->read, plan->guarded));
    read.by_row = true;
    statement_add_text(&read, pk->base.options.queue);
    statement_add_int(&read, arena, pk->base.horizon.floor);
    statement_add_int(&read, arena, plan->key_limit);
    statement_add_int(&read, arena, plan->rows_limit);
    left_behind_add_to(&pk->base.horizon.left, arena, &read);
    return read;
}

/* On an ordinary day there is nothing to look at but the newest ids, from a known one on. */
static bool is_fresh_enough(const struct per_key *pk, const struct claim_request *request,
                            const struct claim_plan *plan)
{
    return pk->base.scan.known && pk->fresh.looked && !pk->fresh.due && !request->behind && request->max_keys > 1 &&
           request->follow_key_count == 0 && request->busy_key_count + request->busy_keyless_count == 0 &&
           !request->followed_only && id_range_is_empty(plan->scan.newest) && id_range_is_empty(plan->scan.oldest) &&
           pk->base.horizon.left.count == 0;
}

/* Statements of the half that locks. */
static size_t locks_of(const struct claim_plan *plan)
{
    return plan->fresh ? 1 : plan->section_count;
}

static size_t per_key_claim(struct ordering *o, const struct claim_request *request, instant_us now,
                            struct arena *arena, struct statement *ret, struct claim_plan *ret_plan)
{
    struct per_key *pk = (struct per_key *)o;
    *ret_plan = (struct claim_plan){
        .rows_limit = pk->base.rows.limit, .key_limit = request->events_per_key, .behind = request->behind};
    ret_plan->guarded = request->unreadable_count > 0;
    ret_plan->report = scan_saw_nothing;
    ret_plan->epoch = pk->base.horizon.epoch;
    ret_plan->floor = pk->base.horizon.floor;
    struct scan_plan *scan = &ret_plan->scan;
    if (request->followed_only)
        *scan = (struct scan_plan){.fresh_above = SCAN_ID_MAX, .newest = {1, 0}, .oldest = {1, 0}};
    else
        scan_next(&pk->base.scan, now, scan);

    if (ret_plan->guarded)
        *ret++ = ordering_guard(request->unreadable, request->unreadable_count, arena);
    ret_plan->fresh = is_fresh_enough(pk, request, ret_plan);
    if (ret_plan->fresh) {
        claim_fresh_ask(&pk->fresh, request, ret_plan, pk->base.horizon.floor, arena, ret);
    } else {
        pk->sections.waits = pk->sections.waits || pk->fresh.due;
        claim_sections_ask(&pk->sections, request, ret_plan, arena, ret);
        ret[ret_plan->section_count] = read_statement(pk, request, arena, ret_plan);
        pk->fresh.looked = true;
        pk->fresh.due = false;
    }
    ret[locks_of(ret_plan) + 1] = statement_of(sql_claim_rest);
    return locks_of(ret_plan) + 2 + ret_plan->guarded;
}

/* Where a claim has looked and seen nothing: below the least id and above the greatest one that it has seen anywhere.
 * What an entry covers it has seen as well: only probes pass that. */
static void note_bare(struct per_key *pk, const struct claim_plan *plan, bool seen)
{
    const struct scan_report *report = &plan->report;
    struct id_range low = plan->scan.oldest, high = plan->scan.newest;
    if (!id_range_is_empty(report->oldest_left))
        low = id_range_below(low, report->oldest_left.lo);
    if (!id_range_is_empty(report->newest_left))
        high = id_range_above(high, report->newest_left.hi);
    if (seen) {
        low = id_range_below(low, report->seen_min);
        high = id_range_above(high, report->seen_max);
        horizon_saw(&pk->base.horizon, report->seen_min);
        horizon_saw(&pk->base.horizon, report->seen_max);
    }
    horizon_looked(&pk->base.horizon, plan, low);
    horizon_looked(&pk->base.horizon, plan, high);
}

/* Somebody may insert an id that was long settled. This claim still reads above the old floor. */
static void lower_floor(struct per_key *pk, struct claim_plan *plan)
{
    struct id_range *missed = &plan->report.missed;
    for (size_t i = 0; i < plan->low.count; i++) {
        struct span key = plan->low.at[i].key;
        int64_t id = plan->low.at[i].ids.lo;
        if (id >= pk->base.horizon.floor || left_behind_has(&pk->base.horizon.left, key, id))
            continue;
        horizon_lower(&pk->base.horizon, id);
        id_range_widen(missed, (struct id_range){id, id});
    }
}

static bool read_locks(struct per_key *pk, struct claim_plan *plan, size_t index, const PGresult *res,
                       struct arena *arena, struct error *err)
{
    if (!claim_section_locked(&pk->sections, plan, index, res, arena, err))
        return false;
    if (index + 1 < plan->section_count)
        return true;
    note_bare(pk, plan, plan->report.seen_max != SCAN_ID_MIN);
    lower_floor(pk, plan);
    return true;
}

static bool read_fresh_locks(struct per_key *pk, struct claim_plan *plan, const PGresult *res, struct arena *arena,
                             struct error *err)
{
    bool seen;
    if (!claim_fresh_locked(&pk->fresh, plan, res, arena, &seen, err))
        return false;
    if (seen) {
        horizon_saw(&pk->base.horizon, plan->report.seen_min);
        horizon_saw(&pk->base.horizon, plan->report.seen_max);
    }
    return true;
}

static bool per_key_claimed(struct ordering *o, struct claim_plan *plan, size_t index, const PGresult *res,
                            const struct claim_intake *intake, struct error *err)
{
    struct per_key *pk = (struct per_key *)o;
    if (index < plan->guarded)
        return true;
    index -= plan->guarded;
    if (index < locks_of(plan))
        return plan->fresh ? read_fresh_locks(pk, plan, res, intake->arena, err)
                           : read_locks(pk, plan, index, res, intake->arena, err);
    for (int row = 0; row < PQntuples(res); row++) {
        plan->rows++;
        if (!event_row_read(&pk->base.options, res, row, intake, err))
            return false;
    }
    return true;
}

static void per_key_claim_done(struct ordering *o, struct claim_plan *plan, int64_t took_us, instant_us now)
{
    struct per_key *pk = (struct per_key *)o;
    struct scan_report report = plan->report;
    report.found = plan->events > 0;
    scan_seen(&pk->base.scan, &plan->scan, &report, took_us, now);
    bool full = plan->rows >= plan->rows_limit;
    plan->truncated = full || plan->spilled;
    if (plan->truncated)
        scan_truncated(&pk->base.scan, &plan->scan, &report, now);
    if (plan->truncated && plan->few)
        pk->wary = WARY_CLAIMS;
    else if (pk->wary > 0)
        pk->wary--;
    if (plan->locked > 0) /* else it says nothing of keys */
        pk->few = pk->base.options.key_index && !plan->truncated && !plan->behind && plan->rows <= plan->locked * FEW;
    claim_rows_done(&pk->base.rows, plan);
}

static void per_key_claim_failed(struct ordering *o, const struct claim_plan *plan)
{
    struct per_key *pk = (struct per_key *)o;
    scan_failed(&pk->base.scan, &plan->scan);
    claim_rows_failed(&pk->base.rows, plan);
}

static struct statement per_key_grant(struct ordering *o, const struct lease_list *list, int backend_pid,
                                      struct arena *arena)
{
    return lease_sql_grant(&((const struct per_key *)o)->lease, list, backend_pid, arena);
}

static struct statement per_key_renew(struct ordering *o, const struct span *tokens, size_t count, int backend_pid,
                                      struct arena *arena)
{
    return lease_sql_renew(&((const struct per_key *)o)->lease, tokens, count, backend_pid, arena);
}

/* A wait that is over as well: the claim that saw it has left it to the next one. */
static bool per_key_pending(const struct ordering *o, instant_us now)
{
    return ((const struct per_key *)o)->fresh.due || strategy_pending(o, now);
}

static instant_us per_key_pending_at(const struct ordering *o)
{
    return ((const struct per_key *)o)->fresh.due ? 0 : strategy_pending_at(o);
}

const struct ordering_type ordering_per_key = {
    .open = per_key_open,
    .close = per_key_close,
    .claim = per_key_claim,
    .claimed = per_key_claimed,
    .claim_done = per_key_claim_done,
    .claim_failed = per_key_claim_failed,
    .hold = strategy_hold,
    .grant = per_key_grant,
    .renew = per_key_renew,
    .settle = strategy_settle,
    .settled = strategy_settled,
    .released = strategy_released,
    .probe = strategy_probe,
    .probed = strategy_probed,
    .wants_probe = strategy_wants_probe,
    .forget = strategy_forget,
    .peek = strategy_peek,
    .inhabited = strategy_inhabited,
    .pending = per_key_pending,
    .pending_at = per_key_pending_at,
    .sweep_due = strategy_sweep_due,
};
