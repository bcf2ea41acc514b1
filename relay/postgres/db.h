/* relay/postgres/db.h -- one PostgreSQL connection that never blocks: threads look up host names (db_hosts.h).
 * Where that is set up, libpq itself waits for a Kerberos server, and for LDAP in a service file.
 *
 *   db_new -> (db_prepare -> poll(2) -> db_progress until DB_NOTHING)* -> db_free
 *   when up and idle: db_send... -> db_end_round -> DB_RESULT... -> DB_ROUND_END
 *
 * A round is a pipeline: its statements travel together and run in order; after the first error the server skips
 * the rest of the round. A lost connection is reported once, as DB_DOWN, and connected again by itself, after a wait
 * that grows until a round has been answered. In a session of our own, statements are prepared on first use; behind a
 * pooler that shares sessions (found out by comparing backend pids, or told by the configuration) nothing is prepared
 * and no session state is set; the search_path is, for each transaction, by statements that nobody sees. There
 * transactions are begun by sql_claim_begin and ended by "commit" and "rollback", and no other words. */
#pragma once

#include "relay/base/backoff.h"
#include "relay/base/clock.h"
#include "relay/base/pollset.h"
#include "relay/base/statement.h"
#include "relay/postgres/sqlstate.h"

#include <libpq-fe.h>

struct db;

#define DB_LOCK_TIMEOUT_US (5 * SECOND_US)

/* How long a statement waits for a lock, where nothing asks for less. Its own time is not up by then: who waits for
 * somebody else is told so, and not that its rows take too long. */
static inline int64_t db_lock_timeout_us(int64_t statement_timeout_us)
{
    return instant_min(DB_LOCK_TIMEOUT_US, statement_timeout_us / 2);
}

enum prepared { PREPARED_AUTO, PREPARED_ON, PREPARED_OFF };

struct db_options {
    const char *conninfo;         /* borrowed */
    const char *application_name; /* borrowed */
    int prepared;                 /* enum prepared */
    int64_t statement_timeout_us;
    int64_t lock_timeout_us;
    bool read_write; /* a standby or a read-only server counts as not there */
    uint64_t seed;
};

enum db_event {
    DB_NOTHING,   /* nothing more for now */
    DB_UP,        /* connected and set up; idle */
    DB_RESULT,    /* of statement `index` of the round; may be an error, and with by_row one row of many */
    DB_ROUND_END, /* idle again */
    DB_DOWN       /* the connection is gone and with it its transaction; *err says why */
};

struct db_result {
    PGresult *res; /* the receiver's to PQclear(); NULL unless DB_RESULT */
    size_t index;  /* of the statement in its round, from 0; the number of statements: the round's own end failed */
};

struct db *db_new(const struct db_options *options);
void db_free(struct db *db);

bool db_is_idle(const struct db *db); /* up, and no round under way */

/* Of the session; 0: there is none that is ours. */
int db_backend_pid(const struct db *db);

/* Its session is shared by a pooler and has none of our settings, lock_timeout for one. */
bool db_is_shared(const struct db *db);

/* Adds a statement to the round being built; parameters are copied to the wire at once. False and *err when the
 * connection turns out to be lost: DB_DOWN follows from db_progress(). */
bool db_send(struct db *db, const struct statement *st, struct error *err) MUST_CHECK;
bool db_send_sql(struct db *db, const char *sql, struct error *err) MUST_CHECK; /* without parameters */
bool db_end_round(struct db *db, struct error *err) MUST_CHECK;

void db_prepare(struct db *db, struct pollset *ps);
/* What has happened next; `ps` NULL: whatever poll(2) has said, there may be something to read. */
enum db_event db_progress(struct db *db, const struct pollset *ps, instant_us now, struct db_result *ret,
                          struct error *err);

/* Drops the connection: DB_DOWN follows. `unprepared`: and prepare nothing from now on. */
void db_drop(struct db *db, bool unprepared, const char *why);

/* The text of the next notification that has arrived, cut to `size`; false: there is none. Whoever listens asks after
 * each db_progress(). */
bool db_notification(struct db *db, char *ret_text, size_t size);

/* ---- of a result alone: db_result.c ---- */

/* What a session that ends says of it, as a notice or in the place of a result; NULL: it does not end. */
const char *db_result_last_words(const PGresult *res);

/* Fills *err from a failed result; the rule says what to do about it. */
const struct sqlstate_rule *db_result_rule(const PGresult *res, struct error *err);
