/* relay/config/config_check.h -- what no single row of a settings table can say: how values fit together. */
#pragma once

#include "relay/config/config.h"
#include "relay/config/config_read.h"

/* A sink's or queue's name: it goes into logs, metrics and pgcourier's own tables. `place` is the name's. */
bool config_check_name(const struct config_place *place, const char *name, struct error *err) MUST_CHECK;

/* Is `text` something libpq can read? The text is never shown: it may hold a password. */
bool config_check_database(const struct config_place *place, const char *text, struct error *err) MUST_CHECK;

/* `queue` alone and against the sinks and the queues before it. `map` is its mapping and `place` that of its name. */
bool config_check_queue(const struct config_place *place, const struct yaml_node *map, const struct config *config,
                        const struct queue_config *queue, struct error *err) MUST_CHECK;

/* What queues hand on to each other, when all are read: finds queue->next. `map` is the mapping of the queues and
 * `place` that of its name. */
bool config_link_queues(const struct config_place *place, const struct yaml_node *map, const struct config *config,
                        struct error *err) MUST_CHECK;
