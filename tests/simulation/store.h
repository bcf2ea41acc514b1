/* tests/simulation/store.h -- the tables, transactions and locks of a simulated PostgreSQL.
 *
 * As in the real one: a statement sees what had been committed when its snapshot was taken, and what its own
 * transaction did; whoever meets a row that an open transaction is ending has to wait for that transaction; ids are
 * drawn outside of transactions; a commit is visible before its advisory locks are free. Nothing here knows of time. */
#ifndef TESTS_SIMULATION_STORE_H
#define TESTS_SIMULATION_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TXN_NONE (-1)
#define TXNS_MAX 65536
#define ROWS_MAX 128
#define WAITS_MAX 4096
#define LOCKS_MAX 512
#define KEY_NONE_SIM (-1)
#define AT_INFINITY INT64_MAX
#define PRIORITY_NONE INT64_MIN

enum txn_state { TXN_OPEN, TXN_COMMITTED, TXN_ABORTED };

struct txn {
    enum txn_state state;
    int64_t committed_as; /* the how-manieth commit it was */
    bool draws;           /* holds what horizon_holders.sql lists */
    int within;           /* the transaction that it is a part of, from a savepoint on; else itself */
};

/* Of a row: which transaction made it and which one ended it; and which has locked it last, until its end. */
struct version {
    int made_by, ended_by, locked_by;
};

static inline struct version version_of(int txn)
{
    return (struct version){.made_by = txn, .ended_by = TXN_NONE, .locked_by = TXN_NONE};
}

/* What the table does when a row is to be deleted. */
enum whim { WHIM_NONE, WHIM_REFUSES, WHIM_STAYS, WHIM_MOVES };

struct row {
    struct version version;
    int64_t id;
    int key;          /* KEY_NONE_SIM: no order wanted */
    int sent;         /* the key that is sent with it; another one only where nothing is ordered */
    int64_t priority; /* PRIORITY_NONE: null */
    int64_t due_at;   /* not before; 0: at once */
    int bytes;
    enum whim whim;
};

/* outbox.parked */
struct wait {
    struct version version;
    int key; /* KEY_NONE_SIM: `head` waits alone */
    int64_t head;
    int64_t attempts;
    int64_t next_at; /* AT_INFINITY: closed */
    /* Of a lease, which lasts until next_at: */
    int64_t token; /* 0: it is none */
    int64_t taken_id, taken_at;
    int owner, process; /* the backend it ends with, besides, or 0; whose it is */
};

/* An advisory lock: of the backend's transaction, of its session, or both. */
struct lock {
    int64_t name;
    int backend;
    bool of_transaction;
    unsigned of_session; /* how many times */
};

struct store {
    struct txn txns[TXNS_MAX];
    int txn_count;
    int64_t commits;
    struct row rows[ROWS_MAX]; /* in the order of their ids */
    size_t row_count;
    struct wait waits[WAITS_MAX];
    size_t wait_count;
    struct lock locks[LOCKS_MAX];
    size_t lock_count;
    int64_t drawn; /* the sequence */
};

/* What one statement sees. */
struct snapshot {
    int64_t commits;
    int txn; /* its own, or TXN_NONE */
};

void store_clear(struct store *store);

int store_begin(struct store *store);
int store_begin_part(struct store *store, int txn); /* may be aborted by itself; otherwise it goes with `txn` */
void store_commit(struct store *store, int txn);
void store_abort(struct store *store, int txn);

bool store_sees(const struct store *store, const struct snapshot *snapshot, const struct version *version);

enum txn_state store_state(const struct store *store, int txn);
bool store_is_mine(const struct store *store, int txn, int me); /* `me` has done it, in some part, and not undone it */

/* For update: others have to wait for the end of transaction `me`. */
void store_lock_version(struct version *version, int me);
bool store_is_locked(const struct store *store, const struct version *version);

/* The transaction that `me` has to wait for before it may end this row, or TXN_NONE. */
int store_contested(const struct store *store, const struct version *version, int me);
/* There, and not ended by anybody, whatever snapshots say: what a write finds. */
bool store_is_live(const struct store *store, const struct version *version, int me);

struct row *store_find_row(struct store *store, int64_t id); /* NULL: there never was one */
struct row *store_add_row(struct store *store, int64_t id, int key, int txn);
struct wait *store_add_wait(struct store *store, const struct wait *wait, int txn);

/* Forgets versions of entries that nobody sees or waits for any more; `oldest` is the oldest snapshot. */
void store_vacuum_waits(struct store *store, int64_t oldest);

/* Until the end of the transaction, or until the session frees it as often. False when another backend has it. */
bool store_try_lock(struct store *store, int64_t name, int backend, bool session);
int store_lock_holder(const struct store *store, int64_t name);           /* -1: nobody */
bool store_is_kept(const struct store *store, int64_t name, int backend); /* by the session */
bool store_unlock(struct store *store, int64_t name, int backend); /* once, of the session; false: it has none such */
void store_unlock_transaction(struct store *store, int backend);
void store_unlock_all(struct store *store, int backend);

#endif
