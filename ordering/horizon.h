/* ordering/horizon.h -- how far ids are settled: what scan.h is told, and where the first event is.
 *
 *   horizon_init -> (horizon_probe -> horizon_probed per result)* -> horizon_done
 *
 * `floor`: no event has a smaller id, but those that were put in by hand, those of keys that wait, and those that were
 * left behind: these are read from their own head on, and one that is closed for months, or locked for hours, would
 * keep all reads among what is dead. It only rises over ids that are settled (see scan.h) and were found empty, or
 * covered (horizon_floor.sql), or of a key that was left behind (left_behind.h), by a snapshot taken after they
 * settled, and only when one sequence feeds the ids. Claims find it out by the way, where they see all rows that there
 * are, and a few long stretches are remembered until the floor is there; what they have not walked, and what is still
 * there, probes do. */
#ifndef ORDERING_HORIZON_H
#define ORDERING_HORIZON_H

#include "ordering/left_behind.h"
#include "ordering/ordering.h"

enum horizon_floor {
    FLOOR_NONE, /* nobody asks for it */
    FLOOR_EVENTS,
    FLOOR_KEYS /* and goes past what stays: reads of its key begin there */
};

struct horizon {
    bool sequence, sees_all, key_index;
    enum horizon_floor kind;
    char *drawn_sql, *holders_sql, *movers_sql, *floor_sql;
    const char *queue; /* borrowed */
    int64_t floor;
    struct id_ranges bare; /* above it, of settled ids, long stretches where claims have seen that nothing is */
    struct left_behind left;
    bool rising;  /* the last probe has raised it, or none has looked */
    bool covered; /* its event is, or what lies there is passed: horizon_movers.sql is worth asking */
    int64_t rows; /* to look at next: many more while all that was looked at last was passed */
    /* The event that probes have found at the floor, again and again since then. */
    int64_t stuck;
    instant_us stuck_since;
    /* The probe under way: when it was sent, what the floor was, the end of its stretch, the rows to look at, the index
     * of its statement, and whether movers are asked for before it. */
    instant_us probed_at;
    int64_t floor_from, floor_to, floor_rows;
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

/* After a failure, too, it is ready for horizon_done(). */
bool horizon_init(struct horizon *horizon, const struct ordering_options *options, enum horizon_floor kind,
                  struct error *err) MUST_CHECK;
void horizon_done(struct horizon *horizon);

/* Nothing that is known of ids holds any more: all of it is learned again. */
void horizon_forget(struct horizon *horizon, struct scan *scan);

/* As in struct ordering_type. */
size_t horizon_probe(struct horizon *horizon, const struct scan *scan, instant_us now, struct arena *arena,
                     struct statement *ret);
void horizon_probed(struct horizon *horizon, struct scan *scan, size_t index, const PGresult *res);
/* A claim of this plan has looked at all of these ids and seen none. */
void horizon_looked(struct horizon *horizon, const struct claim_plan *plan, struct id_range bare);
/* One has seen an event with this id. Of all that a claim has seen, the smallest and the greatest are told. */
void horizon_saw(struct horizon *horizon, int64_t id);
/* And one that somebody has put in below the floor. */
void horizon_lower(struct horizon *horizon, int64_t id);
/* As in struct ordering_type. */
void horizon_inhabited(const struct horizon *horizon, struct id_ranges *ret);
/* Another probe soon would spare claims more than it costs. */
bool horizon_wants_probe(const struct horizon *horizon, const struct scan *scan);

#endif
