/* ordering/scan.h -- where in a table to look for events next.
 *
 * Pure arithmetic on ids: no I/O, no clock. Dead rows cost a walk until vacuum has passed, at both ends of the table,
 * and an old snapshot keeps them all; so every stretch of ids is looked at once, not once a claim.
 *
 *   scan_init -> (scan_next -> run the claim -> scan_seen)*, with scan_horizon whenever one was read
 *
 *      settled                                        top
 *   ------|=============== fresh =====================|----->  ids
 *    gaps: stretches at or below that still have to be looked at
 *
 * Ids become visible out of order. An id at or below `settled` is visible or never will be: every transaction that
 * could bring it has ended (scan_horizon). Above it, some thousand ids are looked at again in each claim; where a
 * long-running transaction keeps `settled` down, what lies below those is looked at again whenever one of the others
 * ends that could have brought it, and all is once more when it settles. What a claim saw and could not take is looked
 * at again, and a slow sweep goes over what is settled for ever, so that no mistake of this module can lose an event.
 */
#ifndef ORDERING_SCAN_H
#define ORDERING_SCAN_H

#include "ordering/id_range.h"
#include "relay/base/clock.h"

#define SCAN_HOLDERS_MAX 512

/* The three stretches of one claim. */
struct scan_plan {
    int64_t fresh_above;    /* newest first, ids greater than this */
    struct id_range newest; /* newest first */
    struct id_range oldest; /* oldest first */
    int64_t settled;        /* when the plan was made: all up to it can be seen */
    bool sweeping;          /* `oldest` is the slow sweep's */
    bool more;              /* these are not all that was to be looked at: a backlog */
};

/* What the claim found. */
struct scan_report {
    struct id_range newest_left, oldest_left; /* parts of the plan's ranges not looked at; empty when done */
    int64_t seen_max;                         /* greatest id seen, or SCAN_ID_MIN */
    int64_t seen_min;                         /* of use with a seen_max: least id seen, or SCAN_ID_MIN: not known */
    struct id_range missed;                   /* seen and not taken (locked elsewhere); empty when none */
    bool found;                               /* anything was taken */
};

extern const struct scan_report scan_saw_nothing;

/* One probe of what feeds the table's ids. */
struct scan_horizon {
    int64_t first;           /* no id is smaller, normally */
    int64_t drawn;           /* no greater id had been drawn before the holders were listed */
    const uint64_t *holders; /* transactions that have drawn an id and not ended, as hashes */
    size_t holder_count;
};

/* A transaction that has drawn ids and not ended. */
struct scan_holder {
    uint64_t hash;
    int64_t above; /* it has drawn none that is not greater */
};

struct scan {
    int64_t settled, top, passed;
    struct id_ranges gaps;
    struct id_ranges again; /* seen and not taken */
    instant_us again_at;
    int64_t again_delay_us;
    int64_t sweep_at;                     /* where the slow sweep goes on, */
    int64_t sweep_span;                   /* by so many ids at a time */
    instant_us sweep_after, sweep_beside; /* not sooner; not sooner beside gaps */
    bool astray;                          /* something was found since the sweep began anew */
    bool swept;                           /* since something was last found it has gone over everything */
    int64_t span;                         /* ids in one bounded stretch */
    int64_t quickest_us;                  /* of the claims that found nothing, lately; 0: there was none */
    int64_t first;
    bool known;              /* a horizon has been read */
    int64_t drawn, top_then; /* when it was: how far, and what `top` was */
    struct scan_holder holders[SCAN_HOLDERS_MAX];
    size_t holder_count;
};

void scan_init(struct scan *scan);

/* What to look at now. */
void scan_next(struct scan *scan, instant_us now, struct scan_plan *ret);

/* Every claim looks at the ids greater than this. */
int64_t scan_fresh_above(const struct scan *scan);

/* The outcome of that plan, and how long the claim took. */
void scan_seen(struct scan *scan, const struct scan_plan *plan, const struct scan_report *report, int64_t took_us,
               instant_us now);

/* The plan was not carried out, or what it found was given back: its stretches are looked at again. */
void scan_failed(struct scan *scan, const struct scan_plan *plan);

/* Ids of one stretch are to be looked at again, not before `at`. */
void scan_again(struct scan *scan, struct id_range range, instant_us at);

/* After scan_seen(): some of what was locked was not returned. From the least to the greatest id that was seen, the
 * plan is looked at again, and not beyond: that may be millions of dead rows. */
void scan_truncated(struct scan *scan, const struct scan_plan *plan, const struct scan_report *report, instant_us now);

void scan_horizon(struct scan *scan, const struct scan_horizon *horizon);

/* There is more to look at right now, whatever the last claim found. */
bool scan_pending(const struct scan *scan, instant_us now);

/* When scan_pending() turns true by itself; INSTANT_NEVER if it does not. */
instant_us scan_pending_at(const struct scan *scan);

/* The slow sweep may go on, and has not been everywhere since something was last found. */
bool scan_sweep_due(const struct scan *scan, instant_us now);

/* Ids above `settled` exist, so another horizon would help. */
bool scan_unsettled(const struct scan *scan);

/* So many; while nothing is known, more than any number. */
int64_t scan_unsettled_ids(const struct scan *scan);

#endif
