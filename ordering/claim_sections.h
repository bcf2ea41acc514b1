/* ordering/claim_sections.h -- the first half of a claim: the statements that choose keys and lock them.
 *
 *   claim_sections_init -> (claim_sections_ask -> claim_section_locked per result)* -> claim_sections_done
 *
 * Each section looks at one thing: keys by name, waits that are over, the newest ids, or a stretch from one of the two
 * ends of what has not been looked at; or at the most urgent events. A claim has those that have something to look at,
 * and the keys of each are left for the ones behind it and for the half that reads (sql/claim/lock_ids.sql says more).
 */
#ifndef ORDERING_CLAIM_SECTIONS_H
#define ORDERING_CLAIM_SECTIONS_H

#include "ordering/claim_rows.h"
#include "ordering/guarded_text.h"
#include "ordering/ordering.h"

#define PRIORITY_LEAST INT64_MIN /* nothing is less urgent: there is nothing more to look at */

struct claim_sections {
    const struct ordering_options *options; /* borrowed, */
    const struct claim_rows *rows;          /* and how many are looked at */
    struct guarded_text newest, oldest;
    struct guarded_text newest_first; /* newest, for keys alone whose first event is there */
    struct guarded_text top, below;   /* of events by their priority, */
    bool events;                      /* each of which is locked by itself */
    char *named, *due;
    bool waits; /* keys may wait: a claim looks for those whose wait is over */
};

/* After a failure, too, it is ready for claim_sections_done(). */
bool claim_sections_init(struct claim_sections *sections, const struct ordering_options *options,
                         const struct claim_rows *rows, struct error *err) MUST_CHECK;

/* The same where no event waits for another. */
bool claim_sections_init_events(struct claim_sections *sections, const struct ordering_options *options,
                                const struct claim_rows *rows, struct error *err) MUST_CHECK;
void claim_sections_done(struct claim_sections *sections);

/* Fills ret with the statements and plan->sections with what they look at; plan->floor and ->top are known, and with
 * ->top the place in the order of priorities from which it is looked. That place is then moved to what is left. */
void claim_sections_ask(const struct claim_sections *sections, const struct claim_request *request,
                        struct claim_plan *plan, struct arena *arena, struct statement *ret);

/* Adds what section `index` has locked and seen to the plan. */
bool claim_section_locked(struct claim_sections *sections, struct claim_plan *plan, size_t index, const PGresult *res,
                          struct arena *arena, struct error *err);

#endif
