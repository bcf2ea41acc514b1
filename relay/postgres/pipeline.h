/* relay/postgres/pipeline.h -- the statements of one round on one connection, and what each result that comes back is
 * of. For db.c alone.
 *
 *   pipeline_reset (a new connection) -> (pipeline_send... -> pipeline_due, pipeline_pass... -> pipeline_end)*
 *
 * More goes out than the caller sends: a PREPARE before what is new, and the search_path (sql/session/session_path.sql)
 * of each transaction in a session that a pooler shares. Their results are told by expected.own_text. */
#pragma once

#include "relay/base/statement.h"
#include "relay/postgres/statement_cache.h"

#include <libpq-fe.h>

#define PIPELINE_EXPECTED_MAX 48

struct expected {
    const char *own_text; /* prepared, or a path that was set: the relay's own; NULL: the caller waits for the result */
    bool by_row;
    size_t index; /* of the statement in the round */
};

struct pipeline {
    struct statement_cache prepared;
    struct expected expected[PIPELINE_EXPECTED_MAX]; /* results due, in order */
    size_t expected_count, expected_next, statements;
    bool sharing;  /* a pooler shares the session, which has our path for a transaction at a time */
    bool begun;    /* by sql_claim_begin, and not ended */
    bool has_path; /* the next statement runs with it */
};

/* Nothing is under way, and nothing is known of the session but what `sharing` says until it is told. */
void pipeline_reset(struct pipeline *pipeline);

/* Adds a statement, prepared if it is sent by its name. False: libpq's message says why. */
bool pipeline_send(struct pipeline *pipeline, PGconn *conn, const struct statement *st, bool by_name) MUST_CHECK;

/* Adds one that the session is set up with: never prepared, and no statement of a round. */
bool pipeline_send_setup(struct pipeline *pipeline, PGconn *conn, const char *sql, int count,
                         const char *const *values) MUST_CHECK;

/* What the next result is of; NULL: all are in, and it is the round's own. */
const struct expected *pipeline_due(const struct pipeline *pipeline);

/* It is in. False: there was none. */
bool pipeline_pass(struct pipeline *pipeline);

/* The round is over. */
void pipeline_end(struct pipeline *pipeline);
