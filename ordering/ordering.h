/* ordering/ordering.h -- the contract every claiming strategy implements.
 *
 * A strategy decides which events this relay may deliver next and records what became of them. It does no I/O: it
 * names statements, binds their parameters and reads the results, and relay/postgres/db.c runs them. So every strategy
 * can be tested against results built in memory.
 *
 *   open -> (claim -> claimed per result -> claim_done | claim_failed -> settle -> settled per result)* -> close
 *   and now and then: probe -> probed per result
 *   with leases (options.lease_us): claimed -> grant, COMMIT -> renew at a third of the term -> settle with tokens
 *
 * Invariant all strategies keep: at any instant at most one relay holds a claim on a key, and it holds that key's
 * oldest unsettled event. A strategy with `keyless` knows no keys: then at most one relay holds a claim on an event. */
#ifndef ORDERING_ORDERING_H
#define ORDERING_ORDERING_H

#include "ordering/scan.h"
#include "relay/base/arena.h"
#include "relay/base/clock.h"
#include "relay/base/event.h"
#include "relay/base/statement.h"

#include <libpq-fe.h>

#define ORDERING_STATEMENTS_MAX 10

struct ordering_options {
    const char *queue;                    /* borrowed, like everything here, until close */
    const struct sql_variable *variables; /* the table's names, for sql_render() */
    const struct sql_variable *guarded;   /* the same where there are rows that cannot be read; NULL: there never are */
    int32_t lock_class;
    enum payload_kind payload_kind, headers_kind;
    size_t extra_columns;
    int64_t keys_per_claim, oldest_share;
    bool archive;     /* delivered events go to the archive */
    bool hand_on;     /* and into the next queue's table: then `variables` names that, too */
    bool sequence;    /* a readable sequence feeds the ids, one at a time */
    bool places;      /* a row is found where it was read, unless somebody updates it */
    bool filter;      /* not all rows of the table are this queue's */
    bool key_index;   /* there is an index on the key and the id */
    bool delays;      /* :columns end with how long the event is not due */
    bool passes;      /* or with a number when it had to wait for its time, and later ones of its key did not */
    bool after;       /* and with the id of an event that has to be done first */
    int64_t lease_us; /* what is claimed is leased for so long; 0: it is held by its locks */
    const char *lease_owner;
    bool priority;  /* the table has a column for it */
    bool lock_rows; /* and not ids, by advisory locks: where the strategy has both */
};

/* What the relay wants from one claim. */
struct claim_request {
    int64_t max_keys;
    int64_t events_per_key;       /* at most */
    const struct span *busy_keys; /* keys that must not be claimed */
    size_t busy_key_count;
    const int64_t *busy_keyless_ids; /* the same for events without a key */
    size_t busy_keyless_count;
    const struct span *follow_keys; /* keys known to have more events */
    size_t follow_key_count;
    const int64_t *unreadable; /* rows that cannot be read: not tried, they end what is read of their key */
    size_t unreadable_count;
    bool followed_only; /* look for no others */
    bool behind;        /* their sink is: the newest ids have places for keys whose first event is there */
    uint64_t draw;      /* a random number: which of all that wait for it gets the place of a claim of one key */
};

/* Keys, and events without one by their ids. */
struct key_list {
    struct span *keys;
    size_t key_count;
    int64_t *keyless_ids;
    size_t keyless_count;
};

/* Keys to be leased, and events without one; each has its place in all four. */
struct lease_list {
    struct span *keys; /* absent: an event without a key */
    int64_t *ids;      /* the heads */
    int64_t *failures; /* of those, so far */
    struct span *tokens;
    size_t count;
};

/* A key that a claim has found. */
struct found_key {
    struct span key;     /* empty: none, maybe */
    struct id_range ids; /* of its events, all that were found are in here; empty: none was */
};

/* In the intake's arena. */
struct found_keys {
    const struct found_key *at;
    size_t count;
};

/* What one statement of the half that locks looks at. */
enum claim_section_kind {
    SECTION_NAMED,
    SECTION_DUE,
    SECTION_FRESH,
    SECTION_NEWEST,
    SECTION_OLDEST,
    SECTION_TOP,   /* one priority, from an id on */
    SECTION_BELOW, /* what is less urgent than that */
    SECTION_KINDS
};

_Static_assert(SECTION_KINDS + 3 <= ORDERING_STATEMENTS_MAX,
               "a claim has all of them, a guard, what reads, and the rest");

struct claim_section {
    enum claim_section_kind kind;
    int64_t keys, rows; /* to lock and to look at, at most */
};

/* One claim under way; the strategy's notes from claim() to claim_done(). */
struct claim_plan {
    struct scan_plan scan;
    uint64_t epoch; /* of what was known of ids then */
    struct scan_report report;
    int64_t locked;                 /* locks taken by this claim */
    struct span locked_keys;        /* their keys, see array_text.h; in the intake's arena */
    struct span locked_keyless_ids; /* events without a key, the same by their ids */
    bool guarded;                   /* the request has named rows that cannot be read */
    int64_t floor;      /* no event of a key that does not wait, and was not left behind, has a smaller id */
    int64_t for_oldest; /* keys that the sections before that of the oldest end leave to it */
    struct claim_section sections[SECTION_KINDS];
    size_t section_count;
    int64_t tried, enough;        /* keys that had a place, and how many are no reason to look at more rows */
    bool full;                    /* there may be more rows than were looked at */
    bool thin;                    /* and the ones that were had too few keys */
    bool left;                    /* some of the newest ids are left to the next claim */
    struct found_keys low;        /* with an event below the floor, and that do not wait */
    int64_t rows, rows_limit;     /* events returned and asked for */
    int64_t key_limit;            /* events of one key asked for */
    bool top;                     /* it looks at priorities, */
    bool from_top;                /* at what is most urgent, whatever was looked at before */
    int64_t top_priority, top_id; /* where to go on from there */
    bool behind;                  /* the request's word */
    bool few;                     /* asked for without that limit: the keys are believed to have few */
    bool fresh;                   /* it looks at the newest ids alone */
    struct found_keys missed;     /* of which a later event may have been gone past */
    size_t events;                /* the relay's word to claim_done() and claim_failed(): events it has taken, */
    bool spilled;                 /* whether it had no room for others, */
    int64_t room;                 /* and for how many of their size it has; 0: it has not said */
    bool truncated;               /* claim_done()'s answer: keys were locked and not all of their events returned */
};

/* Where the relay wants what a claim returns. */
struct claim_intake {
    struct arena *arena; /* lives as long as the claim's events */
    void *to;
    /* Takes a copy of `event`; `waited`: its key has an entry in outbox.parked. False and *err when it comes out of
     * order: the claim must not be delivered. */
    bool (*event)(void *to, const struct event *event, bool waited, struct error *err);
    /* A key, or an event without one, that waited for event `id` and has no event any more. */
    void (*ended_wait)(void *to, struct span key, int64_t id);
    /* The event is not due for so long, or with a negative number ever: it is not delivered now, nor is what follows of
     * its key. It may be earlier, when event `after_id` is done; EVENT_NO_ID: there is none such. */
    void (*delayed)(void *to, struct span key, int64_t id, int64_t delay_us, int64_t after_id);
    /* The event is one of the request's rows that cannot be read, and has failed so often: it is not delivered, nor is
     * what follows of its key. */
    void (*unreadable)(void *to, struct span key, int64_t id, unsigned failures);
    /* Somebody has paused the queue: nothing of the claim is to be sent. */
    void (*paused)(void *to);
};

/* With no attempts it is no failure: the event is not due. */
struct settle_failure {
    int64_t id;
    struct span key; /* absent: an event without a key */
    int64_t attempts;
    int64_t delay_us; /* negative: closed until somebody resumes it */
    int64_t after_id; /* it waits for this event; EVENT_NO_ID: for none */
    struct span why;
};

/* Everything that is settled together: one transaction, all or nothing. */
struct settlement {
    const int64_t *done;  /* acked; behind them come the ids of `buried` */
    const uint64_t *tids; /* of each that is acked, where its row was when it was read: all are there, or nothing is
                           * done; NULL: they are found by their ids */
    size_t done_count;
    const struct span *responses; /* to each of them, where those go on; else NULL */
    const struct settle_failure *parked;
    size_t parked_count;
    const struct settle_failure *buried; /* dead letters */
    size_t buried_count;
    const struct span *resumed_keys; /* keys that waited and whose head is done or buried */
    size_t resumed_key_count;
    const int64_t *resumed_keyless_ids;
    size_t resumed_keyless_count;
    const struct span *tokens; /* leases of all of this: nothing is done unless each is still ours. They end, but for */
    size_t token_count;
    const struct span *moved_tokens; /* those that go on with event moved_ids[i] */
    const int64_t *moved_ids;
    size_t moved_count;
    const struct span *released_tokens; /* given back: nothing became of what is left of these */
    size_t released_count;
    const int64_t *unreadable; /* rows that cannot be read, of these keys or others */
    size_t unreadable_count;
};

struct ordering_type {
    bool keyless; /* every event stands for itself, and a key is only sent with it */

    struct ordering *(*open)(const struct ordering_options *options, struct error *err);
    void (*close)(struct ordering *o);

    /* Fills ret[0..result) with the statements of a claim, to be run inside an open READ COMMITTED transaction. */
    size_t (*claim)(struct ordering *o, const struct claim_request *request, instant_us now, struct arena *arena,
                    struct statement *ret, struct claim_plan *ret_plan);
    /* Reads one result (with by_row: one row) of statement `index` into the intake. */
    bool (*claimed)(struct ordering *o, struct claim_plan *plan, size_t index, const PGresult *res,
                    const struct claim_intake *intake, struct error *err);
    void (*claim_done)(struct ordering *o, struct claim_plan *plan, int64_t took_us, instant_us now);
    /* The claim failed or was lost: what it covered is looked at again, in fewer rows when some had come. */
    void (*claim_failed)(struct ordering *o, const struct claim_plan *plan);

    /* With `keep`, the session goes on holding the locks of these keys, which its transaction holds, beyond that one's
     * end; without, it frees them again, when what became of the keys is committed. The result is the number of locks:
     * all of them, or the claim must not go on. */
    struct statement (*hold)(struct ordering *o, const struct key_list *list, bool keep, struct arena *arena);

    /* Only with leases. The keys of a claim are ours for a term from the end of its transaction on; the result is the
     * number of leases: all of them, or the claim must not be delivered. They end with the backend `backend_pid`, too,
     * unless that is 0. */
    struct statement (*grant)(struct ordering *o, const struct lease_list *list, int backend_pid, struct arena *arena);
    /* The terms of these begin anew. The result is a row for the token of each that is lost. */
    struct statement (*renew)(struct ordering *o, const struct span *tokens, size_t count, int backend_pid,
                              struct arena *arena);

    /* Record outcomes; to be run in one transaction. Returns the number of statements, at least 1 unless the
     * settlement is empty. */
    size_t (*settle)(struct ordering *o, const struct settlement *s, struct arena *arena, struct statement *ret);
    /* Reads result `index`; adds to *ret_missing the events that were no longer there. */
    void (*settled)(struct ordering *o, const struct settlement *s, size_t index, const PGresult *res,
                    size_t *ret_missing);

    /* Events from id `lo` to `hi` were given back and may be claimed again from `at` on. */
    void (*released)(struct ordering *o, int64_t lo, int64_t hi, instant_us at);

    /* Statements that tell how far ids are settled; run outside of claims. */
    size_t (*probe)(struct ordering *o, instant_us now, struct arena *arena, struct statement *ret);
    void (*probed)(struct ordering *o, size_t index, const PGresult *res);
    bool (*wants_probe)(const struct ordering *o);
    /* It may be another server that is asked from now on, or one that has lost its last transactions: what probes have
     * told does not hold any more. Nothing may be claimed before the next one is answered. */
    void (*forget)(struct ordering *o);

    /* The ids that may have events, one range or more: others have none, but what its key's entry covers (horizon.h),
     * and what was put in by hand. */
    void (*inhabited)(const struct ordering *o, struct id_ranges *ret);

    /* One statement that has a row when something new waits to be claimed, or something whose wait is over. `guarded`:
     * there are rows that cannot be read, and ordering_guard() has named them before it in its transaction. */
    void (*peek)(const struct ordering *o, bool guarded, struct arena *arena, struct statement *ret);

    /* More to claim right now; and when that turns true by itself. */
    bool (*pending)(const struct ordering *o, instant_us now);
    instant_us (*pending_at)(const struct ordering *o);
    /* A claim would find what was passed by mistake, and it has not looked everywhere since it last found something. */
    bool (*sweep_due)(const struct ordering *o, instant_us now);
};

struct ordering {
    const struct ordering_type *type;
    bool locks_rows; /* what is claimed only its transaction can settle, and hold() is of no use */
    bool places;     /* settlements may name where rows were read */
};

extern const struct ordering_type ordering_per_key, ordering_unordered;

/* Says which rows cannot be read, to the statements behind it in the same transaction. */
struct statement ordering_guard(const int64_t *ids, size_t count, struct arena *arena);

/* By the value of `ordering:`; NULL if there is none. `lease` chooses keys as `per_key` does. */
const struct ordering_type *ordering_type_find(const char *name);

#endif
