#include "ordering/claim_fresh.h"

#include "ordering/result.h"
#include "sql_text.h"

/* Those of sql/claim/fresh_lock.sql. */
enum lock_column {
    LOCK_SEEN_MIN,
    LOCK_SEEN_MAX,
    LOCK_MISSED_MIN,
    LOCK_MISSED_MAX,
    LOCK_LOCKED,
    LOCK_CLAIM,
    LOCK_KEYLESS,
    LOCK_MORE,
    LOCK_DUE,
    LOCK_COLUMNS
};

bool claim_fresh_init(struct claim_fresh *fresh, const struct ordering_options *options, struct error *err)
{
    const struct sql_variable *v = options->variables, *guarded = options->guarded;
    *fresh = (struct claim_fresh){.options = options};
    return guarded_text_init(&fresh->lock, sql_fresh_lock, v, guarded, err) &&
           guarded_text_init(&fresh->read, sql_fresh_read, v, guarded, err);
}

void claim_fresh_done(struct claim_fresh *fresh)
{
    guarded_text_done(&fresh->lock);
    guarded_text_done(&fresh->read);
}

void claim_fresh_ask(const struct claim_fresh *fresh, const struct claim_request *request,
                     const struct claim_plan *plan, int64_t floor, struct arena *arena, struct statement *ret)
{
    struct statement *lock = &ret[0], *read = &ret[1];
    *lock = statement_of(guarded_text_of(&fresh->lock, plan->guarded));
    statement_add_int(lock, arena, plan->scan.fresh_above);
    statement_add_int(lock, arena, request->max_keys);
    statement_add_text(lock, fresh->options->queue);
    statement_add_int(lock, arena, fresh->options->lock_class);
    *read = statement_of(guarded_text_of(&fresh->read, plan->guarded));
    read->by_row = true;
    statement_add_text(read, fresh->options->queue);
    statement_add_int(read, arena, floor);
    statement_add_int(read, arena, plan->key_limit);
    statement_add_int(read, arena, plan->rows_limit);
}

bool claim_fresh_locked(struct claim_fresh *fresh, struct claim_plan *plan, const PGresult *res, struct arena *arena,
                        bool *ret_seen, struct error *err)
{
    if (PQnfields(res) != LOCK_COLUMNS || PQntuples(res) != 1)
        return error_set(err, ERROR_INTERNAL, "the locking half of a claim returned %d rows of %d columns",
                         PQntuples(res), PQnfields(res));
    struct scan_report *report = &plan->report;
    int64_t id;
    *ret_seen = result_bigint(res, 0, LOCK_SEEN_MIN, &report->seen_min) &&
                result_bigint(res, 0, LOCK_SEEN_MAX, &report->seen_max);
    if (result_bigint(res, 0, LOCK_MISSED_MIN, &id) && result_bigint(res, 0, LOCK_MISSED_MAX, &report->missed.hi))
        report->missed.lo = id;
    result_bigint(res, 0, LOCK_LOCKED, &plan->locked);
    plan->locked_keys = arena_copy(arena, result_span(res, 0, LOCK_CLAIM));
    plan->locked_keyless_ids = arena_copy(arena, result_span(res, 0, LOCK_KEYLESS));
    plan->left = result_bigint(res, 0, LOCK_MORE, &id) && id;
    fresh->due = result_bigint(res, 0, LOCK_DUE, &id) && id;
    return true;
}
