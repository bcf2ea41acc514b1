#include "relay/postgres/pipeline.h"

#include "sql_text.h"

#include <assert.h>
#include <string.h>

void pipeline_reset(struct pipeline *pipeline)
{
    *pipeline = (struct pipeline){.sharing = pipeline->sharing};
}

static void expect(struct pipeline *pipeline, const char *own_text, bool by_row)
{
    assert(pipeline->expected_count < PIPELINE_EXPECTED_MAX);
    pipeline->expected[pipeline->expected_count++] = (struct expected){own_text, by_row, pipeline->statements};
}

static bool send_prepared(struct pipeline *pipeline, PGconn *conn, const struct statement *st)
{
    char name[STATEMENT_NAME_SIZE];
    statement_cache_name(st->sql, name);
    if (!statement_cache_has(&pipeline->prepared, st->sql)) {
        if (PQsendPrepare(conn, name, st->sql, 0, NULL) != 1)
            return false;
        expect(pipeline, st->sql, false);
        statement_cache_add(&pipeline->prepared, st->sql);
    }
    return PQsendQueryPrepared(conn, name, st->count, st->values, st->lengths, st->formats, 1) == 1;
}

static bool send_path(struct pipeline *pipeline, PGconn *conn, const char *sql, int count)
{
    static const char *const for_transaction[] = {"true"};
    if (PQsendQueryParams(conn, sql, count, NULL, for_transaction, NULL, NULL, 0) != 1)
        return false;
    expect(pipeline, sql, false);
    return true;
}

/* A COMMIT that was sent may have been skipped, because something before it in its round failed: what the server said
 * last counts. */
static bool is_in_transaction(const struct pipeline *pipeline, const PGconn *conn)
{
    PGTransactionStatusType status = PQtransactionStatus(conn);
    return status == PQTRANS_INTRANS || status == PQTRANS_INERROR || (status != PQTRANS_IDLE && pipeline->begun);
}

/* The path is set behind a BEGIN, else before the first statement of a transaction, of which a round without BEGIN is
 * one. */
static bool send_path_before(struct pipeline *pipeline, PGconn *conn, const char *sql)
{
    bool begins = sql == sql_claim_begin, ends = strcmp(sql, "commit") == 0 || strcmp(sql, "rollback") == 0;
    if (pipeline->statements == 0)
        pipeline->has_path = pipeline->begun = is_in_transaction(pipeline, conn);
    if (!pipeline->has_path && !begins && !ends && !send_path(pipeline, conn, sql_session_path, 1))
        return false;
    pipeline->begun = (pipeline->begun || begins) && !ends;
    pipeline->has_path = !ends;
    return true;
}

bool pipeline_send(struct pipeline *pipeline, PGconn *conn, const struct statement *st, bool by_name)
{
    if (pipeline->sharing && !send_path_before(pipeline, conn, st->sql))
        return false;
    bool sent = by_name
                    ? send_prepared(pipeline, conn, st)
                    : PQsendQueryParams(conn, st->sql, st->count, NULL, st->values, st->lengths, st->formats, 1) == 1;
    if (!sent)
        return false;
    expect(pipeline, NULL, st->by_row);
    pipeline->statements++;
    return !pipeline->sharing || st->sql != sql_claim_begin || send_path(pipeline, conn, sql_session_path_begun, 0);
}

bool pipeline_send_setup(struct pipeline *pipeline, PGconn *conn, const char *sql, int count, const char *const *values)
{
    if (PQsendQueryParams(conn, sql, count, NULL, values, NULL, NULL, 0) != 1)
        return false;
    expect(pipeline, NULL, false);
    return true;
}

const struct expected *pipeline_due(const struct pipeline *pipeline)
{
    return pipeline->expected_next < pipeline->expected_count ? &pipeline->expected[pipeline->expected_next] : NULL;
}

bool pipeline_pass(struct pipeline *pipeline)
{
    if (pipeline->expected_next == pipeline->expected_count)
        return false; /* LCOV_EXCL_LINE */
    pipeline->expected_next++;
    return true;
}

void pipeline_end(struct pipeline *pipeline)
{
    pipeline->expected_count = pipeline->expected_next = pipeline->statements = 0;
}
