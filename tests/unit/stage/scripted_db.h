/* tests/unit/stage/scripted_db.h -- a connection that says what the test tells it to, and talks to nobody.
 *
 *   script_reset -> (what sends a round) -> script_brings... -> (what takes what has come) -> script.drop_reason ...
 *
 * The program is linked with --wrap for the functions of relay/postgres/db.h that are here. */
#ifndef TESTS_UNIT_SCRIPTED_DB_H
#define TESTS_UNIT_SCRIPTED_DB_H

#include "relay/postgres/db.h"

#include <check.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

#define SCRIPT_MAX 32

static struct {
    bool idle, shared;
    bool hurried;                 /* poll(2) does not wait for it */
    const char *sent[SCRIPT_MAX]; /* the statements so far, and "end" for the end of a round */
    size_t sends;
    size_t fails_at; /* the send that fails; 0: none does */
    struct {
        enum db_event event;
        struct db_result result;
    } events[SCRIPT_MAX];
    size_t event_count, event_next;
    char drop_reason[ERROR_TEXT_MAX];
} script;

static inline void script_reset(void)
{
    memset(&script, 0, sizeof script);
    script.idle = true;
}

/* What nobody has taken. */
static inline void script_done(void)
{
    for (; script.event_next < script.event_count; script.event_next++)
        PQclear(script.events[script.event_next].result.res);
}

static inline void script_brings(enum db_event event)
{
    ck_assert_uint_lt(script.event_count, SCRIPT_MAX);
    script.events[script.event_count++].event = event;
}

/* The result of statement `index`: good, or of another kind. */
static inline void script_brings_result(size_t index, ExecStatusType status)
{
    script_brings(DB_RESULT);
    script.events[script.event_count - 1].result = (struct db_result){PQmakeEmptyPGresult(NULL, status), index};
}

/* The same with one number in it. */
static inline void script_brings_count(size_t index, int64_t count)
{
    PGresAttDesc column = {.name = "count", .format = 1, .typid = 20};
    uint64_t big = htobe64((uint64_t)count);
    script_brings_result(index, PGRES_TUPLES_OK);
    PGresult *res = script.events[script.event_count - 1].result.res;
    ck_assert(PQsetResultAttrs(res, 1, &column) && PQsetvalue(res, 0, 0, (char *)&big, sizeof big));
}

/* The place of a statement in the only round that was sent. */
static inline size_t script_index(const char *sql)
{
    size_t i = 0;
    while (i < script.sends && strcmp(script.sent[i], sql) != 0)
        i++;
    return i;
}

/* Good results of all statements of that round. */
static inline void script_brings_results(void)
{
    for (size_t i = 0; i < script_index("end"); i++)
        script_brings_result(i, PGRES_COMMAND_OK);
}

bool __wrap_db_is_idle(const struct db *db);
bool __wrap_db_is_shared(const struct db *db);
bool __wrap_db_send(struct db *db, const struct statement *st, struct error *err);
bool __wrap_db_send_sql(struct db *db, const char *sql, struct error *err);
bool __wrap_db_end_round(struct db *db, struct error *err);
enum db_event __wrap_db_progress(struct db *db, const struct pollset *ps, instant_us at, struct db_result *ret,
                                 struct error *err);
void __wrap_db_drop(struct db *db, bool unprepared, const char *why);
void __wrap_db_prepare(struct db *db, struct pollset *ps);

static inline bool script_sends(const char *sql, struct error *err)
{
    ck_assert_uint_lt(script.sends, SCRIPT_MAX);
    script.sent[script.sends++] = sql;
    bool fails = script.sends == script.fails_at;
    return !fails || error_set(err, ERROR_UNREACHABLE, "cannot be sent");
}

bool __wrap_db_is_idle(const struct db *db)
{
    (void)db;
    return script.idle;
}

bool __wrap_db_is_shared(const struct db *db)
{
    (void)db;
    return script.shared;
}

bool __wrap_db_send(struct db *db, const struct statement *st, struct error *err)
{
    (void)db;
    return script_sends(st->sql, err);
}

bool __wrap_db_send_sql(struct db *db, const char *sql, struct error *err)
{
    (void)db;
    return script_sends(sql, err);
}

bool __wrap_db_end_round(struct db *db, struct error *err)
{
    (void)db;
    return script_sends("end", err);
}

enum db_event __wrap_db_progress(struct db *db, const struct pollset *ps, instant_us at, struct db_result *ret,
                                 struct error *err)
{
    (void)db;
    (void)ps;
    (void)at;
    if (script.event_next == script.event_count)
        return DB_NOTHING;
    size_t i = script.event_next++;
    *ret = script.events[i].result;
    if (script.events[i].event == DB_DOWN)
        error_set(err, ERROR_UNREACHABLE, "gone");
    return script.events[i].event;
}

void __wrap_db_drop(struct db *db, bool unprepared, const char *why)
{
    (void)db;
    (void)unprepared;
    snprintf(script.drop_reason, sizeof script.drop_reason, "%s", why);
}

void __wrap_db_prepare(struct db *db, struct pollset *ps)
{
    (void)db;
    if (script.hurried)
        pollset_deadline(ps, 0);
}

#endif
