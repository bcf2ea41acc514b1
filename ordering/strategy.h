/* ordering/strategy.h -- what all strategies have in common: which ids to look at, how far they are settled, how locks
 * are kept and outcomes written.
 *
 * A strategy's own struct begins with this one, so that the functions here can stand in its struct ordering_type. */
#ifndef ORDERING_STRATEGY_H
#define ORDERING_STRATEGY_H

#include "ordering/claim_rows.h"
#include "ordering/guarded_text.h"
#include "ordering/held_locks.h"
#include "ordering/horizon.h"
#include "ordering/ordering.h"
#include "ordering/settler.h"

struct strategy {
    struct ordering ordering;
    struct ordering_options options;
    struct guarded_text peek;
    struct held_locks held;
    struct settler settler;
    struct horizon horizon;
    struct scan scan;
    struct claim_rows rows;
};

/* After a failure, too, it is ready for strategy_done(). */
bool strategy_init(struct strategy *strategy, const struct ordering_type *type, const struct ordering_options *options,
                   enum horizon_floor floor, struct error *err) MUST_CHECK;
void strategy_done(struct strategy *strategy);

/* As in struct ordering_type. */
struct statement strategy_hold(struct ordering *o, const struct key_list *list, bool keep, struct arena *arena);
size_t strategy_settle(struct ordering *o, const struct settlement *s, struct arena *arena, struct statement *ret);
void strategy_settled(struct ordering *o, const struct settlement *s, size_t index, const PGresult *res,
                      size_t *ret_missing);
void strategy_released(struct ordering *o, int64_t lo, int64_t hi, instant_us at);
size_t strategy_probe(struct ordering *o, instant_us now, struct arena *arena, struct statement *ret);
void strategy_probed(struct ordering *o, size_t index, const PGresult *res);
void strategy_forget(struct ordering *o);
bool strategy_wants_probe(const struct ordering *o);
void strategy_peek(const struct ordering *o, bool guarded, struct arena *arena, struct statement *ret);
void strategy_inhabited(const struct ordering *o, struct id_ranges *ret);
bool strategy_pending(const struct ordering *o, instant_us now);
instant_us strategy_pending_at(const struct ordering *o);
bool strategy_sweep_due(const struct ordering *o, instant_us now);

#endif
