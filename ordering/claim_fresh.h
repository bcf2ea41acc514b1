/* ordering/claim_fresh.h -- a claim on an ordinary day: the newest ids, from a known one on, and nothing else.
 *
 *   claim_fresh_init -> (claim_fresh_ask -> claim_fresh_locked with the first one's result)* -> claim_fresh_done
 *
 * per_key.c decides when that is enough. */
#ifndef ORDERING_CLAIM_FRESH_H
#define ORDERING_CLAIM_FRESH_H

#include "ordering/guarded_text.h"
#include "ordering/ordering.h"

struct claim_fresh {
    const struct ordering_options *options; /* borrowed */
    struct guarded_text lock, read;
    bool looked; /* a claim of another kind has looked for waits since the start */
    bool due;    /* the wait of a key is over: one has to look for it */
};

/* After a failure, too, it is ready for claim_fresh_done(). */
bool claim_fresh_init(struct claim_fresh *fresh, const struct ordering_options *options, struct error *err) MUST_CHECK;
void claim_fresh_done(struct claim_fresh *fresh);

/* Fills ret[0] with the statement that locks and ret[1] with the one that reads; no event of a key that does not wait
 * has an id below `floor`. */
void claim_fresh_ask(const struct claim_fresh *fresh, const struct claim_request *request,
                     const struct claim_plan *plan, int64_t floor, struct arena *arena, struct statement *ret);

/* Reads what was locked into the plan. `ret_seen`: plan->report has the least and the greatest id that were seen. */
bool claim_fresh_locked(struct claim_fresh *fresh, struct claim_plan *plan, const PGresult *res, struct arena *arena,
                        bool *ret_seen, struct error *err);

#endif
