/* relay/round.h -- one round of statements on one connection, and how it went. */
#ifndef RELAY_ROUND_H
#define RELAY_ROUND_H

#include "relay/queue.h"

void round_begin(struct round *round);

/* The statements of a settlement, behind round->ahead. Owns `job` until round_done(). */
bool round_add_settlement(struct round *round, struct db *db, struct ordering *ordering, struct settle_job *job,
                          struct error *err) MUST_CHECK;

/* Notes the first failure. True when `res` is a good result. */
bool round_take(struct round *round, size_t index, const PGresult *res);

/* The first failure was in the settlement, and what is in the rows may be its cause. */
bool round_was_refused(const struct round *round);

/* The first failure was not in the statements before `index`: they are done. */
bool round_reached(const struct round *round, size_t index);

void round_done(struct round *round);

#endif
