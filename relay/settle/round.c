#include "relay/settle/round.h"

#include "relay/queue/queue.h"
#include "relay/settle/settle.h"
#include "sql_text.h"

void round_begin(struct round *round)
{
    *round = (struct round){.arena = arena_new()};
}

struct statement round_timeouts(const struct queue *queue, const char *lock_timeout, struct arena *arena)
{
    struct statement st = statement_of(sql_settle_timeouts);
    statement_add_text(&st, lock_timeout);
    statement_add_int(&st, arena, queue->process->statement_timeout_us / MS_US);
    return st;
}

bool round_add_settlement(struct round *round, struct db *db, const struct queue *queue, struct settle_job *job,
                          struct error *err)
{
    struct ordering *ordering = queue->ordering;
    struct statement statements[ORDERING_STATEMENTS_MAX];
    round->job = job;
    if (round->ahead && !db_send_sql(db, round->ahead, err))
        return false;
    if (round->lock_timeout) {
        struct statement st = round_timeouts(queue, round->lock_timeout, round->arena);
        if (!db_send(db, &st, err))
            return false;
    }
    size_t count = ordering->type->settle(ordering, &job->settlement, round->arena, statements);
    round->settle_at = round->settle_end + (round->ahead != NULL) + (round->lock_timeout != NULL);
    round->settle_end = round->settle_at + count;
    for (size_t i = 0; i < count; i++)
        if (!db_send(db, &statements[i], err))
            return false;
    return true;
}

bool round_take(struct round *round, size_t index, const PGresult *res)
{
    switch (PQresultStatus(res)) {
    case PGRES_TUPLES_OK:
    case PGRES_SINGLE_TUPLE:
    case PGRES_COMMAND_OK:
        return true;
    case PGRES_PIPELINE_ABORTED:
        return false;
    default:
        break;
    }
    if (!round->failed) {
        round->failed = true;
        round->failed_at = index;
        round->rule = db_result_rule(res, &round->error);
        round->refusal = db_result_last_words(res) ? REFUSAL_NONE : round->rule->refusal;
    }
    return false;
}

bool round_was_refused(const struct round *round)
{
    return round->job && round->failed && round->refusal != REFUSAL_NONE && round->failed_at >= round->settle_at &&
           round->failed_at < round->settle_end;
}

bool round_may_have_moved_rows(const struct round *round)
{
    return round_was_refused(round) && round->job->settlement.tids && round->refusal == REFUSAL_OF_ROW;
}

/* The settlement's first statement says so, by a text that is no number: see settle_leases.sql. */
bool round_met_lost_lease(const struct round *round)
{
    return round->job && round->job->settlement.token_count > 0 && round->failed_at == round->settle_at &&
           round->rule->kind == ERROR_REFUSED;
}

bool round_reached(const struct round *round, size_t index)
{
    return !round->failed || round->failed_at >= index;
}

void round_done(struct round *round)
{
    arena_free(round->arena);
    round->arena = NULL;
    round->job = NULL;
}

size_t round_before_claim(const struct round *round)
{
    return round->settle_end + round->commit + round->begin + round->lasting + (round->unlock_count > 0);
}
