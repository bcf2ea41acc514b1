/* relay/side/serving.h -- what a relay serves is seen by others. Two that serve a table by different classes of locks
 * do not keep out of each other's way, and each would deliver everything: the second one is refused.
 *
 *   serving_begin, at the start, on a connection that stays until serving_is_shown
 *   after each connect of the queue's side connection: serving_statement -> serving_take, before anything is claimed
 *
 * It is shown by a lock of a session: it ends with the relay, and costs nothing meanwhile. Behind a pooler no session
 * is the relay's own, so it says so in a table, again and again (sql/serving/, note_serving() in sql/schema/).
 *
 * DESIGN. Starts take turns, so of two that start together one finds the other. A relay that has lost its connections
 * may find another in its place: it stands still until that one is gone, and then goes on. */
#pragma once

#include "relay/base/arena.h"
#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/base/statement.h"
#include "relay/config/config.h"
#include "relay/table/table.h"

#include <libpq-fe.h>

struct queue;

#define SERVING_AGAIN_US (30 * SECOND_US)  /* behind a pooler it is said again */
#define SERVING_REFUSED_US (5 * SECOND_US) /* while another relay is in the way, that is asked again */

/* Whether other classes of locks would be in its way: not those of rows, nor in a schema of the relay's own. */
static inline bool serving_matters(const struct table *table)
{
    return table->keys_oid != 0;
}

/* Shows what is served in the session of `conn`, until that ends. False and *err, which names the other, when a relay
 * serves rows of the table by another class of locks: ERROR_CONFIG, or ERROR_CONFLICT where that is only believed for
 * a while, behind a pooler. Another kind: the database failed. Blocking. */
bool serving_begin(PGconn *conn, const struct config *process, const struct queue_config *config,
                   const struct table *table, struct error *err) MUST_CHECK;

/* Shows it in a session that is new, or says it again. `shared`: a pooler shares the session. */
void serving_statement(const struct queue *queue, bool shared, struct arena *arena, struct statement *ret);

/* What was answered. False and *err, which names the other, when the queue must not be served. */
bool serving_take(const struct queue *queue, const PGresult *res, struct error *err) MUST_CHECK;
