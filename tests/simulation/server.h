/* tests/simulation/server.h -- the backends of the simulated PostgreSQL: rounds of statements, executed one after the
 * other in virtual time, each with a snapshot of its own, and all the ways in which that ends badly.
 *
 *   server_connect -> server_send... -> (server_next -> server_step)* -> server_hang_up */
#ifndef TESTS_SIMULATION_SERVER_H
#define TESTS_SIMULATION_SERVER_H

#include "relay/base/clock.h"
#include "relay/base/statement.h"
#include "tests/simulation/store.h"

#include <libpq-fe.h>

#define BACKENDS_MAX 64
#define CALL_PARAMS_MAX 20

enum query {
    QUERY_BEGIN,
    QUERY_COMMIT,
    QUERY_ROLLBACK,
    QUERY_SAVEPOINT,
    QUERY_UNDO, /* back to the savepoint */
    QUERY_RELEASE,
    QUERY_SYNC,    /* the end of a round */
    QUERY_EOF,     /* the client is gone */
    QUERY_NOTHING, /* or settle_timeouts.sql: see query_run() */
    QUERY_SEARCH,  /* those of sql/unreadable/ */
    QUERY_LISTEN,
    QUERY_WAKE_LOCK, /* those of sql/rest/ */
    QUERY_WAKE_UNLOCK,
    QUERY_WRITERS,
    QUERY_LAST_LOOK,
    QUERY_LOCK_NEWEST,
    QUERY_LOCK_FIRST, /* the same where the sink is behind */
    QUERY_LOCK_OLDEST,
    QUERY_LOCK_NAMED,
    QUERY_LOCK_DUE,
    QUERY_LOCK_FRESH,
    QUERY_LOCK_LATEST, /* those of lock_events.sql */
    QUERY_LOCK_URGENT,
    QUERY_LOCK_TOP,
    QUERY_LOCK_BELOW,
    QUERY_LOCK_LOWEST,
    QUERY_READ,
    QUERY_READ_FEW,
    QUERY_READ_FRESH,
    QUERY_READ_EVENTS,
    QUERY_KEEP, /* locks for the session */
    QUERY_FREE,
    QUERY_DONE,
    QUERY_BURY,
    QUERY_KEPT,
    QUERY_PARK,
    QUERY_UNPARK,
    QUERY_DRAWN,
    QUERY_SEEN,
    QUERY_HOLDERS,
    QUERY_MOVERS,
    QUERY_FLOOR,
    QUERY_PEEK,
    QUERY_EMPTY,
    QUERY_PAUSED,
    QUERY_GRANT,
    QUERY_RENEW,
    QUERY_LEASES,
    QUERY_MOVE,
    QUERY_GIVE_BACK,
    QUERY_OWNERLESS,
    QUERY_DUE,
    QUERY_UPKEEP /* that finds nothing to do */
};

struct list {
    int64_t *values;    /* ids, or the numbers of keys and tokens; KEY_NONE_SIM for null */
    struct span *texts; /* of texts */
    size_t count;
};

/* One statement on its way. */
struct call {
    enum query query;
    size_t index; /* in its round */
    instant_us at;
    int64_t n[CALL_PARAMS_MAX];         /* $1 is n[0] */
    struct list lists[CALL_PARAMS_MAX]; /* the same for arrays */
    struct call *next;
};

struct db;

struct backend {
    bool alive;
    int pid;           /* no other has it, ever */
    struct db *client; /* NULL: gone */
    int process;
    bool explicit;  /* in a transaction block */
    bool failed;    /* of which a statement has failed: nothing more until its end */
    bool skipping;  /* to the end of the round */
    bool running;   /* the first call is being executed */
    bool releasing; /* committed; its locks are not free yet */
    bool listening;
    int rests;     /* how often it has the locks of rest_lock.sql */
    bool notifies; /* its transaction has asked, and a relay rested */
    int txn, part; /* what writes: the transaction, or its part from the last savepoint on */
    bool savepoint;
    struct call *calls, **calls_end;
    instant_us next_at, started_at, said_at;
    struct snapshot snapshot;
    int waits_for;                             /* a transaction */
    instant_us patience_us;                    /* its lock_timeout in this round; 0: that of the session */
    const char *refusal;                       /* what the query fails with */
    instant_us cut_at;                         /* nothing passes from then on; */
    instant_us heard_at;                       /* the client finds out at this time */
    struct list claim_keys, claim_keyless_ids; /* courier.claim, courier.keyless */
    struct list movers;                        /* courier.movers: names of locks */
    bool movers_known;                         /* in the transaction under way */
    bool writes_parked;                        /* its transaction has the lock on the table */
    bool misses;                               /* its settlement has found rows missing */
    int64_t alone;     /* the only event that the round takes out; QUERY_NO_ID: there is none such */
    bool reads_paused; /* its claim is told that the queue is paused */
};

void server_clear(void);

/* -1: refused. */
int server_connect(struct db *client, int process);
void server_send(int backend, struct call *call);
void server_hang_up(int backend); /* the client closes; its backend finds out some time later */

/* When the next backend has something to do; server_step() is for that one. */
instant_us server_next(void);
void server_step(void);

/* The server goes down: every session ends at once, nobody gets in for a while. */
void server_restart(int64_t down_us);

/* One session ends, as by pg_terminate_backend(): any, or one that listens. */
void server_terminate(bool listening);

/* What a trigger asks; and when it was so, at the commit of its transaction: tells who listens, of the table or the
 * queue. */
bool server_somebody_rests(void);
void server_notify(bool queue);

struct backend *server_backend(int backend);
bool server_has_backend(int pid);
int server_backend_of(int txn); /* whose transaction it is, while it is open; -1: nobody's */

/* ---- for the queries ---- */

/* Hands over `res` (taken over) as a result of the call under way. */
void server_reply(struct backend *backend, PGresult *res);

/* Carries out the call: replies and true; or false, when it has to wait for `backend->waits_for`, or fails with
 * `backend->refusal`. */
bool query_run(struct backend *backend, const struct call *call);
bool query_settle(struct backend *backend, const struct call *call);
bool query_lock(struct backend *backend, const struct call *call); /* false: it is no section of a claim */
/* The columns that tell what was left for the half that reads. */
void query_put_claim(const struct backend *backend, PGresult *res, int column);

/* An event by itself, as a row or by its id; or it is gone. */
bool query_lock_event(struct backend *backend, int64_t id);
void query_lock_events(struct backend *backend, const struct call *call);

bool query_grant(struct backend *backend, const struct call *call);
bool query_renew(struct backend *backend, const struct call *call);
bool query_leases(struct backend *backend, const struct call *call);
bool query_move(struct backend *backend, const struct call *call);
bool query_give_back(struct backend *backend, const struct call *call);
bool query_end_ownerless(struct backend *backend);
bool query_has_owners(const struct backend *backend);              /* something is leased by a relay with a backend */
bool query_rest(struct backend *backend, const struct call *call); /* false: it is none of those */
bool query_due(struct backend *backend, const struct call *call);

#define QUERY_NO_ID INT64_MIN

/* What the snapshot of the statement under way shows. */
bool query_sees(const struct backend *backend, const struct version *version);
/* And where what is not due is left out, is due. */
bool query_sees_row(const struct backend *backend, const struct row *row);

/* The entry of a key, or, with `keyless` an id, that of an event without one. NULL: it does not wait. */
const struct wait *query_find_wait(const struct backend *backend, int64_t key, int64_t keyless);

/* The least id from which on reads of a key, or of an event without one, begin, by the two arrays at `at`;
 * QUERY_NO_ID: as those of others. */
int64_t query_left_behind(const struct call *call, int at, int64_t key, int64_t keyless);

/* The newest version of it, live or being changed; NULL: there is none. Ending one, false: has to wait. */
struct wait *query_newest_wait(const struct backend *backend, int key, int64_t head);
bool query_end_wait(struct backend *backend, struct wait *wait);

/* The advisory lock of a key, or of an event without one. */
int64_t query_lock_name(int key, int64_t id);

#endif
