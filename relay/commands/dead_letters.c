/* DESIGN. Letters go back by hundreds: one statement puts up to LETTERS_MAX of them into the table, in a transaction
 * that holds the locks of their keys. A savepoint stands before it, and what fails is halved down to the letters that
 * are to blame; each of these is told and stays, and the others go in. Whatever fails for no letter at all is nobody's
 * fault, and ends the run: so the statement runs once without letters before anything else. Deferred constraints are
 * made immediate, because a COMMIT that fails names no row. */
#include "relay/commands/dead_letters.h"

#include "relay/base/arena.h"
#include "relay/base/halving.h"
#include "relay/postgres/query.h"
#include "relay/postgres/sqlstate.h"
#include "sql_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum letter_state {
    LETTER_LEFT, /* nothing is known of it */
    LETTER_FIT,  /* the table has a place for all that it has */
    LETTER_BUSY, /* somebody else has its key */
    LETTER_OVER  /* it was put back, dropped, or told */
};

/* The columns of sql/commands/dead_letters.sql. */
enum { LETTER_DEAD_ID, LETTER_EVENT_ID, LETTER_KEY };

struct letters {
    struct dead_work *work;
    PGresult *rows;
    enum letter_state *states;
    int64_t put; /* in the transaction that is open */
};

/* The letters of one statement. */
struct letter_ids {
    size_t count;
    int only; /* the last one's row */
    char text[LETTERS_MAX * 21 + 3];
};

static bool is_keyless(const struct letters *letters, size_t row)
{
    return PQgetisnull(letters->rows, (int)row, LETTER_KEY);
}

static const char *name_of(const struct letters *letters, size_t row)
{
    return query_text(letters->rows, (int)row, is_keyless(letters, row) ? LETTER_EVENT_ID : LETTER_KEY);
}

static bool same_name(const struct letters *letters, size_t row, size_t other)
{
    return is_keyless(letters, row) == is_keyless(letters, other) &&
           strcmp(name_of(letters, row), name_of(letters, other)) == 0;
}

static bool is_left(const struct letters *letters, size_t row)
{
    return letters->states[row] == LETTER_LEFT || letters->states[row] == LETTER_FIT;
}

/* Those of a part that are left become what they are now. */
static void mark(const struct letters *letters, struct halving_part part, enum letter_state state)
{
    for (size_t row = part.at; row < part.at + part.count; row++)
        if (is_left(letters, row))
            letters->states[row] = state;
}

/* Those of the part that are left, as an array's text. */
static struct letter_ids ids_of(const struct letters *letters, struct halving_part part)
{
    struct letter_ids ids = {.text = "{"};
    size_t used = 1;
    for (size_t row = part.at; row < part.at + part.count; row++) {
        if (!is_left(letters, row))
            continue;
        used += (size_t)snprintf(ids.text + used, sizeof ids.text - used, "%s%s", ids.count++ ? "," : "",
                                 query_text(letters->rows, (int)row, LETTER_DEAD_ID));
        ids.only = (int)row;
    }
    snprintf(ids.text + used, sizeof ids.text - used, "}");
    return ids;
}

static size_t row_of(const struct letters *letters, struct halving_part part, const char *dead_id)
{
    size_t row = part.at;
    while (row + 1 < part.at + part.count && strcmp(query_text(letters->rows, (int)row, LETTER_DEAD_ID), dead_id) != 0)
        row++;
    return row;
}

static const struct dead_statements *statements(const struct letters *letters, struct halving_part part)
{
    return &letters->work->with[is_keyless(letters, part.at)];
}

static void refuse(struct letters *letters, size_t row, const char *why, const char *remedy)
{
    struct dead_work *work = letters->work;
    letters->states[row] = LETTER_OVER;
    work->counts->refused++;
    work->counts->tell(&(struct dead_refusal){.queue = work->queue->name,
                                              .id = query_text(letters->rows, (int)row, LETTER_EVENT_ID),
                                              .key = query_text(letters->rows, (int)row, LETTER_KEY),
                                              .why = why,
                                              .remedy = remedy});
}

/* ---- why one does not go back ---- */

static void refuse_unfit(struct letters *letters, size_t row, const char *problem, const char *name, const char *more)
{
    const char *table = letters->work->table->plain_name;
    struct error why, remedy;
    if (strcmp(problem, "both") == 0) {
        error_set(&why, ERROR_CONFLICT, "it has values in both columns, \"%s\" and \"%s\"", name, more);
        error_set(&remedy, ERROR_CONFLICT, "give --column %s= if that one is to be lost", name);
    } else if (strcmp(problem, "absent") == 0) {
        error_set(&why, ERROR_CONFLICT, "it has no column \"%s\", which is the queue's payload", more);
        error_set(
            &remedy, ERROR_CONFLICT,
            "give --column OLD=%s with the column that its payload is in (\"%s\"?), or --column =%s if it has none",
            more, name, more);
    } else if (strcmp(problem, "computed") == 0) {
        error_set(&why, ERROR_CONFLICT, "it has another value in column \"%s\" than %s computes", name, table);
        error_set(&remedy, ERROR_CONFLICT,
                  "give --column %s=NEW to put such values into another column, or --column %s= to lose them", name,
                  name);
    } else {
        error_set(&why, ERROR_CONFLICT, "it has a value in column \"%s\", which %s has no more", name, table);
        error_set(&remedy, ERROR_CONFLICT,
                  "add the column, or give --column %s=NEW to put such values into another one, or --column %s= to "
                  "lose them",
                  name, name);
    }
    refuse(letters, row, why.text, remedy.text);
}

static void refuse_for(struct letters *letters, size_t row, const PGresult *found, int at, int first)
{
    const char *problem = query_text(found, at, first), *name = query_text(found, at, first + 1);
    const char *more = PQnfields(found) > first + 2 ? query_text(found, at, first + 2) : NULL;
    if (strcmp(problem, "kept out") == 0)
        refuse(letters, row, "a trigger keeps the row out", "have the trigger return the row");
    else if (strcmp(problem, "keyless") == 0)
        refuse(letters, row, "its row would have no key", "map the column that has the key");
    else
        refuse_unfit(letters, row, problem, name, more);
}

/* ---- one part ---- */

enum part_end { PART_PASSED, PART_AGAIN, PART_HALVED, PART_FAILED };

/* No letter's fault, however it failed. */
static bool is_nobodys(const struct letters *letters, const PGresult *result, size_t count)
{
    const char *code = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    enum error_kind kind = sqlstate_rule(code)->kind;
    bool memory = code && strcmp(code, "53200") == 0 && count > 1; /* fewer may pass */
    return PQstatus(letters->work->conn) != CONNECTION_OK || kind == ERROR_UNREACHABLE || kind == ERROR_OVERLOADED ||
           (kind == ERROR_RESOURCE && !memory);
}

static bool undo(const struct letters *letters, struct error *err)
{
    return query_script(letters->work->conn, "rollback", "rollback to savepoint letters", err);
}

/* Frees `failed`. */
static enum part_end take_failure(struct letters *letters, struct letter_ids *ids, PGresult *failed, struct error *err)
{
    if (is_nobodys(letters, failed, ids->count)) {
        PGresult *none = query_result(letters->work->conn, "dead letters", failed, err);
        PQclear(none);
        return PART_FAILED;
    }
    enum part_end end = ids->count > 1 ? PART_HALVED : PART_PASSED;
    if (!undo(letters, err)) {
        end = PART_FAILED;
    } else if (ids->count == 1 && query_is_blocked(failed)) {
        letters->states[ids->only] = LETTER_BUSY;
    } else if (ids->count == 1) {
        letters->states[ids->only] = LETTER_OVER;
        dead_work_refuse(letters->work, query_text(letters->rows, ids->only, LETTER_EVENT_ID),
                         query_text(letters->rows, ids->only, LETTER_KEY), failed);
    }
    PQclear(failed);
    return end;
}

static bool is_answer(const PGresult *result)
{
    return PQresultStatus(result) == PGRES_TUPLES_OK;
}

/* Those without a place for all that they have. A part that failed as a whole is made of letters that fit. */
static enum part_end weed(struct letters *letters, struct halving_part part, struct letter_ids *ids, struct error *err)
{
    const char *sql = statements(letters, part)->unfit, *params[] = {ids->text};
    if (!sql || letters->states[ids->only] == LETTER_FIT)
        return PART_PASSED;
    PGresult *found = PQexecParams(letters->work->conn, sql, 1, NULL, params, NULL, NULL, 0);
    if (!is_answer(found))
        return take_failure(letters, ids, found, err);
    int rows = PQntuples(found);
    for (int at = 0; at < rows; at++)
        refuse_for(letters, row_of(letters, part, query_text(found, at, 0)), found, at, 1);
    PQclear(found);
    mark(letters, part, LETTER_FIT);
    return rows > 0 ? PART_AGAIN : PART_PASSED;
}

/* The columns of sql/commands/dead_retry.sql. */
enum { PUT_TAKEN, PUT_PUT, PUT_DEAD_ID, PUT_PROBLEM };

/* They went in, all of them and as they were: or it is undone, and those that did not are told. */
static enum part_end look_at(struct letters *letters, struct halving_part part, struct letter_ids *ids,
                             const PGresult *put, struct error *err)
{
    int64_t taken = query_int(put, 0, PUT_TAKEN);
    bool named = !PQgetisnull(put, 0, PUT_DEAD_ID);
    if (!named && taken == query_int(put, 0, PUT_PUT)) {
        letters->put += taken;
        mark(letters, part, LETTER_OVER);
        return PART_PASSED;
    }
    if (!undo(letters, err))
        return PART_FAILED;
    for (int at = 0; named && at < PQntuples(put); at++) {
        size_t row = row_of(letters, part, query_text(put, at, PUT_DEAD_ID));
        if (is_left(letters, row))
            refuse_for(letters, row, put, at, PUT_PROBLEM);
    }
    if (named)
        return PART_AGAIN;
    if (ids->count > 1)
        return PART_HALVED;
    refuse(letters, (size_t)ids->only, "a trigger keeps the row out", "have the trigger return the row");
    return PART_PASSED;
}

static enum part_end try_part(struct letters *letters, struct halving_part part, struct error *err)
{
    struct letter_ids ids = ids_of(letters, part);
    if (ids.count == 0)
        return PART_PASSED;
    enum part_end end = weed(letters, part, &ids, err);
    if (end != PART_PASSED || !is_left(letters, (size_t)ids.only))
        return end;
    const char *params[] = {letters->work->queue->name, ids.text};
    PGresult *put =
        PQexecParams(letters->work->conn, statements(letters, part)->letters, 2, NULL, params, NULL, NULL, 0);
    if (!is_answer(put))
        return take_failure(letters, &ids, put, err);
    end = look_at(letters, part, &ids, put, err);
    PQclear(put);
    return end;
}

static bool try_parts(struct letters *letters, struct halving_part batch, struct error *err)
{
    static const char keep[] = "release savepoint letters; savepoint letters";
    struct halving_list list;
    halving_list_begin(&list, batch.count);
    while (list.count > 0) {
        struct halving_part part = halving_list_part(&list);
        enum part_end end = try_part(letters, (struct halving_part){batch.at + part.at, part.count}, err);
        if (end == PART_FAILED)
            return false;
        if (end == PART_HALVED)
            (void)!halving_list_failed(&list);
        if (end != PART_PASSED)
            continue;
        halving_list_succeeded(&list);
        if (list.count > 0 && !query_script(letters->work->conn, "savepoint", keep, err))
            return false;
    }
    return true;
}

/* ---- one transaction ---- */

/* Takes the locks of the batch; whose key somebody else has is busy. */
static bool try_locks(struct letters *letters, struct halving_part batch, struct error *err)
{
    struct letter_ids ids = ids_of(letters, batch);
    const char *params[] = {ids.text};
    PGresult *busy = query(letters->work->conn, "dead letters", statements(letters, batch)->try, 1, params, err);
    for (int at = 0; at < PQntuples(busy); at++)
        letters->states[row_of(letters, batch, query_text(busy, at, 0))] = LETTER_BUSY;
    PQclear(busy);
    return busy != NULL;
}

static bool act_in_transaction(struct letters *letters, struct halving_part batch, bool waits, struct error *err)
{
    struct dead_work *work = letters->work;
    bool locked = waits ? dead_work_lock(work, is_keyless(letters, batch.at), name_of(letters, batch.at), err)
                        : try_locks(letters, batch, err);
    return locked && query_script(work->conn, "savepoint", "set constraints all immediate; savepoint letters", err) &&
           try_parts(letters, batch, err);
}

/* True as well where the key that is waited for stays busy. */
static bool act_on(struct letters *letters, struct halving_part batch, bool waits, struct error *err)
{
    struct dead_work *work = letters->work;
    letters->put = 0;
    work->busy = false;
    if (!query_script(work->conn, "begin", "begin isolation level read committed", err))
        return false;
    if (act_in_transaction(letters, batch, waits, err) && query_script(work->conn, "commit", "commit", err)) {
        work->counts->letters += letters->put;
        return true;
    }
    struct error ignored; /* the first error is the one to report */
    bool over = query_script(work->conn, "rollback", "rollback", work->busy ? err : &ignored);
    if (work->busy)
        mark(letters, batch, LETTER_BUSY);
    return (work->busy && over) || error_prefix(err, "queue %s", work->queue->name);
}

/* ---- all of them ---- */

/* From `at` on, of the same kind; of one key only, if that is to be waited for. */
static struct halving_part next_batch(const struct letters *letters, size_t at, bool one_key)
{
    size_t rows = (size_t)PQntuples(letters->rows), end = at + 1;
    while (end < rows && end - at < LETTERS_MAX && is_keyless(letters, end) == is_keyless(letters, at) &&
           (!one_key || same_name(letters, end, at)))
        end++;
    return (struct halving_part){at, end - at};
}

static bool act_on_free(struct letters *letters, struct error *err)
{
    size_t rows = (size_t)PQntuples(letters->rows);
    for (size_t at = 0; at < rows;) {
        struct halving_part batch = next_batch(letters, at, false);
        if (!act_on(letters, batch, false, err))
            return false;
        at = batch.at + batch.count;
    }
    return true;
}

/* Whose key is busy waits in line for its lock only now: a relay that has more of a key takes its lock again at once,
 * unless somebody waits for it. */
static bool act_on_busy(struct letters *letters, struct error *err)
{
    struct dead_work *work = letters->work;
    size_t rows = (size_t)PQntuples(letters->rows);
    for (size_t at = 0; at < rows;) {
        struct halving_part batch = next_batch(letters, at, true);
        at = batch.at + batch.count;
        bool any = false;
        for (size_t row = batch.at; row < at; row++)
            if (letters->states[row] == LETTER_BUSY) {
                letters->states[row] = LETTER_LEFT;
                any = true;
            }
        instant_us began = clock_now();
        work->wait_ms = dead_work_patience_ms(work);
        if (any && !act_on(letters, batch, true, err))
            return false;
        work->counts->waited_us += any ? clock_now() - began : 0;
    }
    return true;
}

static void name_busy(const struct letters *letters)
{
    size_t rows = (size_t)PQntuples(letters->rows), named = rows;
    for (size_t row = 0; row < rows; row++) {
        if (letters->states[row] != LETTER_BUSY || (named < rows && same_name(letters, named, row)))
            continue;
        dead_work_add_busy(letters->work, is_keyless(letters, row), name_of(letters, row));
        named = row;
    }
}

/* What fails without a letter is no letter's fault: a right that is missing, a trigger of the statement. Closed keys
 * come later; what their statement lacks is better known before anything is done. */
static bool works_for_none(const struct letters *letters, struct error *err)
{
    struct dead_work *work = letters->work;
    const char *params[] = {work->queue->name, "{}"}, *of_none[] = {work->queue->name, "", NULL, NULL};
    if (!query_script(work->conn, "begin", "begin isolation level read committed", err))
        return false;
    PGresult *none = query(work->conn, "dead letters", statements(letters, (struct halving_part){0, 1})->letters, 2,
                           params, err),
             *closed = none ? query(work->conn, "closed keys", work->with[0].closed, 4, of_none, err) : NULL;
    struct error ignored; /* the first error is the one to report */
    bool over = query_script(work->conn, "rollback", "rollback", closed ? err : &ignored), ok = closed && over;
    PQclear(none);
    PQclear(closed);
    return ok || error_prefix(err, "queue %s", work->queue->name);
}

bool dead_letters_act(struct dead_work *work, struct error *err)
{
    const char *params[] = {work->queue->name, work->filter->key, work->filter->id, work->filter->error};
    struct letters letters = {.work = work};
    letters.rows = query(work->conn, "dead letters", sql_dead_letters, 4, params, err);
    if (!letters.rows)
        return false;
    letters.states = memory_array((size_t)PQntuples(letters.rows) + 1, sizeof *letters.states);
    bool ok = PQntuples(letters.rows) == 0 ||
              (works_for_none(&letters, err) && act_on_free(&letters, err) && act_on_busy(&letters, err));
    if (ok)
        name_busy(&letters);
    free(letters.states);
    PQclear(letters.rows);
    return ok;
}
