/* ordering/horizon.h -- how far ids are settled: what scan.h is told, and where the first event is.
 *
 *   horizon_init -> (horizon_probe -> horizon_probed per result)* -> horizon_done
 *
 * `floor`: no event has a smaller id, but those that were put in by hand, and those of keys that wait: these are read
 * from their own head on, and one that is closed for months would keep all reads among what is dead. It only rises over
 * ids that are settled (see scan.h) and were found empty, or covered (horizon_floor.sql), by a snapshot taken after
 * they settled, and only when one sequence feeds the ids. Claims find it out by the way, where they see all rows that
 * there are; what they have not walked, and what is covered, probes do. */
#ifndef ORDERING_HORIZON_H
#define ORDERING_HORIZON_H

#include "ordering/ordering.h"

struct horizon {
    bool sequence, with_floor, sees_all;
    char *drawn_sql, *holders_sql, *movers_sql, *floor_sql;
    const char *queue; /* borrowed */
    int64_t floor;
    bool covered;         /* its event is: it may be passed, */
    instant_us movers_at; /* but nobody is asked sooner */
    size_t floor_at;      /* index of its statement in the probe under way */
    int64_t floor_from;   /* what it was when the probe under way was sent */
    int64_t floor_to;     /* end of the stretch that the probe under way looks at */
    uint64_t source;      /* what told it, as a hash; 0: nobody has */
    uint64_t epoch;       /* how often all of it was forgotten */
    bool reset;           /* the probe under way has found that nothing known holds any more */
    struct scan_horizon read;
    uint64_t holders[SCAN_HOLDERS_MAX + 1];
};

/* After a failure, too, it is ready for horizon_done(). Without `floor` nobody asks for it. */
bool horizon_init(struct horizon *horizon, const struct ordering_options *options, bool floor,
                  struct error *err) MUST_CHECK;
void horizon_done(struct horizon *horizon);

/* Nothing that is known of ids holds any more: all of it is learned again. */
void horizon_forget(struct horizon *horizon, struct scan *scan);

/* As in struct ordering_type. */
size_t horizon_probe(struct horizon *horizon, const struct scan *scan, instant_us now, struct arena *arena,
                     struct statement *ret);
void horizon_probed(struct horizon *horizon, struct scan *scan, size_t index, const PGresult *res);
/* A claim of this plan has looked at all ids of plan->scan.oldest below `end` and seen none. */
void horizon_looked(struct horizon *horizon, const struct claim_plan *plan, int64_t end);
bool horizon_wants_probe(const struct horizon *horizon, const struct scan *scan);

#endif
