#include "relay/commands/dead_work.h"

#include "relay/base/utf8.h"
#include "relay/postgres/query.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NAME_BYTES 80 /* of a busy key */
#define WHY_BYTES 200 /* of what the database says, so that the remedy has room */

/* The first match wins: single codes before their class. */
static const struct {
    const char *prefix, *remedy;
} remedies[] = {
    {"22P02", "let the column's type take the value again (of an enum: alter type ... add value)"},
    {"22P05", "give the column type json or text, which keep \\u0000"},
    {"22", "let the column's type take the value again"},
    {"23502", "allow null, or give the column a default, which a letter without the column takes"},
    {"23503", "insert the row that it refers to"},
    {"23505", "drop the letter if that row is its event, or else delete the row"},
    {"23514", "mend the constraint, or make the partition that takes the row"},
    {"23", "mend the constraint"},
    {"42501", "grant what the trigger or function lacks"},
    {"54", "the row is too large for the table: drop the letter"},
    {"P0", "mend the trigger or function"},
    {"57014", "raise statement_timeout for this login"},
    {"", "mend the cause"},
};

const char *dead_work_noun(bool keyless)
{
    return keyless ? "event" : "key";
}

bool dead_work_lock(struct dead_work *work, bool keyless, const char *name, struct error *err)
{
    char wait_ms[24];
    snprintf(wait_ms, sizeof wait_ms, "%" PRId64, work->wait_ms);
    const char *params[] = {name, wait_ms};
    PGresult *locked = PQexecParams(work->conn, work->with[keyless].lock, 2, NULL, params, NULL, NULL, 0);
    work->busy = query_is_blocked(locked);
    locked = query_result(work->conn, "waiting for its lock", locked, err);
    if (locked)
        work->busy = !query_bool(locked, 0, 2);
    PQclear(locked);
    return locked && !work->busy;
}

int64_t dead_work_patience_ms(const struct dead_work *work)
{
    int64_t left_us = DEAD_PATIENCE_US - work->counts->waited_us;
    return left_us > 0 ? left_us / MS_US : 0;
}

void dead_work_add_busy(struct dead_work *work, bool keyless, const char *name)
{
    struct dead_counts *counts = work->counts;
    if (counts->busy++ >= DEAD_NAMES)
        return;
    size_t used = strlen(counts->busy_names);
    snprintf(counts->busy_names + used, sizeof counts->busy_names - used, "%squeue %s, %s %.*s", used > 0 ? "; " : "",
             work->queue->name, dead_work_noun(keyless), (int)utf8_fit(span_of(name), NAME_BYTES), name);
}

static const char *remedy(const char *sqlstate)
{
    size_t i = 0;
    while (strncmp(sqlstate, remedies[i].prefix, strlen(remedies[i].prefix)) != 0)
        i++;
    return remedies[i].remedy;
}

void dead_work_refuse(struct dead_work *work, const char *id, const char *key, const PGresult *failed)
{
    const char *code = PQresultErrorField(failed, PG_DIAG_SQLSTATE),
               *message = PQresultErrorField(failed, PG_DIAG_MESSAGE_PRIMARY);
    struct error why;
    message = message ? message : "it failed";
    error_set(&why, ERROR_CONFLICT, "%.*s", (int)utf8_fit(span_of(message), WHY_BYTES), message);
    work->counts->refused++;
    work->counts->tell(&(struct dead_refusal){
        .queue = work->queue->name, .id = id, .key = key, .why = why.text, .remedy = remedy(code ? code : "")});
}
