#include "ordering/strategy.h"

#include "ordering/event_row.h"
#include "sql_text.h"

static struct strategy *of(struct ordering *o)
{
    return (struct strategy *)o;
}

static const struct strategy *of_const(const struct ordering *o)
{
    return (const struct strategy *)o;
}

bool strategy_init(struct strategy *strategy, const struct ordering_type *type, const struct ordering_options *options,
                   enum horizon_floor floor, struct error *err)
{
    strategy->ordering =
        (struct ordering){.type = type, .locks_rows = type->keyless && options->lock_rows, .places = options->places};
    strategy->options = *options;
    scan_init(&strategy->scan);
    claim_rows_init(&strategy->rows);
    return event_row_check(options, err) &&
           guarded_text_init(&strategy->peek, sql_claim_peek, options->variables, options->guarded, err) &&
           held_locks_init(&strategy->held, options, err) && settler_init(&strategy->settler, options, err) &&
           horizon_init(&strategy->horizon, options, floor, err);
}

void strategy_done(struct strategy *strategy)
{
    guarded_text_done(&strategy->peek);
    held_locks_done(&strategy->held);
    settler_done(&strategy->settler);
    horizon_done(&strategy->horizon);
}

struct statement strategy_hold(struct ordering *o, const struct key_list *list, bool keep, struct arena *arena)
{
    return held_locks_hold(&of(o)->held, list, keep, arena);
}

size_t strategy_settle(struct ordering *o, const struct settlement *s, struct arena *arena, struct statement *ret)
{
    return settler_settle(&of(o)->settler, s, arena, ret);
}

void strategy_settled(struct ordering *o, const struct settlement *s, size_t index, const PGresult *res,
                      size_t *ret_missing)
{
    (void)o;
    settler_settled(s, index, res, ret_missing);
}

void strategy_released(struct ordering *o, int64_t lo, int64_t hi, instant_us at)
{
    struct scan *scan = &of(o)->scan;
    scan_again(scan, (struct id_range){lo, hi < scan->top ? hi : scan->top}, at);
}

size_t strategy_probe(struct ordering *o, instant_us now, struct arena *arena, struct statement *ret)
{
    return horizon_probe(&of(o)->horizon, &of(o)->scan, now, arena, ret);
}

void strategy_probed(struct ordering *o, size_t index, const PGresult *res)
{
    horizon_probed(&of(o)->horizon, &of(o)->scan, index, res);
}

void strategy_forget(struct ordering *o)
{
    horizon_forget(&of(o)->horizon, &of(o)->scan);
}

bool strategy_wants_probe(const struct ordering *o)
{
    return horizon_wants_probe(&of_const(o)->horizon, &of_const(o)->scan);
}

void strategy_peek(const struct ordering *o, bool guarded, struct arena *arena, struct statement *ret)
{
    const struct strategy *strategy = of_const(o);
    *ret = statement_of(guarded_text_of(&strategy->peek, guarded));
    statement_add_int(ret, arena, scan_fresh_above(&strategy->scan));
    statement_add_text(ret, strategy->options.queue);
    statement_add_int(ret, arena, !o->type->keyless);
}

void strategy_inhabited(const struct ordering *o, struct id_ranges *ret)
{
    horizon_inhabited(&of_const(o)->horizon, ret);
}

bool strategy_pending(const struct ordering *o, instant_us now)
{
    return scan_pending(&of_const(o)->scan, now);
}

instant_us strategy_pending_at(const struct ordering *o)
{
    return scan_pending_at(&of_const(o)->scan);
}

bool strategy_sweep_due(const struct ordering *o, instant_us now)
{
    return scan_sweep_due(&of_const(o)->scan, now);
}
