/* relay/side/serving.h -- a relay announces which tables it serves. Two relays that lock a table's keys by different
 * classes do not exclude each other, and each would deliver everything: the second one is refused.
 *
 *   serving_begin, at the start, on a connection that stays until the side connection has announced the same
 *   after each connect of the queue's side connection: serving_statement -> serving_take, before anything is claimed
 *
 * The announcement is a lock of a session: it ends with the relay, and costs nothing meanwhile. Behind a pooler no
 * session is the relay's own, so the relay announces in a table, again and again (sql/serving/, note_serving()).
 *
 * DESIGN. Starts take turns, so of two that start together one finds the other. A relay that has lost its connections
 * may find another in its place: it stands still until that one has ended, and then goes on. */
#pragma once

#include "relay/base/arena.h"
#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/base/statement.h"
#include "relay/config/config.h"
#include "relay/table/table.h"

#include <libpq-fe.h>

struct queue;

#define SERVING_AGAIN_US (30 * SECOND_US)  /* behind a pooler it is announced again */
#define SERVING_REFUSED_US (5 * SECOND_US) /* while another relay is in the way, it is tried again */

/* Whether other classes of locks would be in its way: not those of rows, nor in a schema of the relay's own. */
static inline bool serving_matters(const struct table *table)
{
    return table->keys_oid != 0;
}

/* Announces which table is served, in the session of `conn`, until that ends. False and *err, which names the other,
 * when a relay serves rows of the table by another class of locks: ERROR_CONFIG, or ERROR_CONFLICT where that is only
 * believed for a while, behind a pooler. Another kind: the database failed. Blocking. */
bool serving_begin(PGconn *conn, const struct config *process, const struct queue_config *config,
                   const struct table *table, struct error *err) MUST_CHECK;

/* Announces it in a new session, or again. `shared`: a pooler shares the session. */
void serving_statement(const struct queue *queue, bool shared, struct arena *arena, struct statement *ret);

/* The answer. False and *err, which names the other, when the queue must not be served. */
bool serving_take(const struct queue *queue, const PGresult *res, struct error *err) MUST_CHECK;
