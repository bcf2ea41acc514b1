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
    bool sequence, with_floor, sees_all, key_index;
    char *drawn_sql, *holders_sql, *movers_sql, *floor_sql;
    const char *queue; /* borrowed */
    int64_t floor;
    bool covered; /* its event is, or what lies there is passed: horizon_movers.sql is worth asking */
    bool passing; /* all that was looked at last was */
    /* The probe under way: what the floor was, the end of its stretch, the index of its statement, and whether movers
     * are asked for before it. */
    int64_t floor_from, floor_to;
    size_t floor_at;
    bool asks;
    /* Looks at movers: not before, what the last one has found or NULL, what had settled when it was sent, and when the
     * one under way was. */
    instant_us movers_at;
    char *writers;
    int64_t looked_settled, look_settled;
    uint64_t source; /* what told it, as a hash; 0: nobody has */
    uint64_t epoch;  /* how often all of it was forgotten */
    bool reset;      /* the probe under way has found that nothing known holds any more */
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
