/* relay/queue/holding.h -- the four ways to hold the keys of a claim while their events are delivered, and how they
 * differ.
 *
 * A module that has to behave in one way for leases and in another for locks asks for one property of the holding, and
 * for nothing else. What a property means is in holding.c; docs/architecture.md shows the table. How the key of one
 * lane is held at this moment is another question: see lane_life.h. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

struct db;
struct queue;

struct holding {
    bool outlives_transaction;
    bool waits_for_blocked_rows;
    bool settles_beside_open_transaction;
    bool extends_open_transaction;
    bool claims_beside_stragglers;
    bool survives_rollback;
    bool commits_before_delivery;
    bool claims_by_room;
    bool has_tokens;
    bool may_expire;
    bool belongs_to_side_connection;
};

/* Of a claim on this connection. */
const struct holding *holding_of_claim(const struct queue *queue, const struct db *db);

/* The same for a module that has no claim at hand. Ask only for what an open transaction and a session lock have in
 * common, because a queue does not tell whether its claims go through a pooler. */
const struct holding *holding_of_queue(const struct queue *queue);

/* The table, as docs/architecture.md has it. */
void holding_print(FILE *out);
