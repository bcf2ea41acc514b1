/* relay/commands/other_queue.h -- queues that the configuration does not have: those of workers, which only
 * outbox.queue knows, and what other configurations have left in the database. For one-shot commands. */
#pragma once

#include "relay/base/error.h"
#include "relay/config/config.h"

#include <libpq-fe.h>

/* False and *err (ERROR_USAGE, with the names that there are) when neither the configuration (NULL: there is none) nor
 * the database knows of a queue of that name. */
bool other_queue_check(PGconn *conn, const struct config *config, const char *name, struct error *err) MUST_CHECK;

/* As much of its settings as its table and its locks need, from outbox.queue; the caller's: other_queue_free(). NULL
 * and *err (ERROR_USAGE) when it is not there. */
struct queue_config *other_queue_read(PGconn *conn, const char *name, struct error *err) MUST_CHECK;
void other_queue_free(struct queue_config *queue); /* NULL is a no-op */
