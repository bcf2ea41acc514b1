/* relay/side/upkeep.h -- the regular tasks of a queue's side connection: it looks whether the queue or a key is paused,
 * makes the archive's days, and removes dead letters and days that are older than their retention.
 *
 *   upkeep_open -> (upkeep_next -> upkeep_begin -> send -> upkeep_take -> upkeep_end)*
 *   and for every turn: upkeep_hear before anything of that, and upkeep_hold
 *
 * One task at a time, of one statement each. A task that fails is tried again later and delays nothing else. One that
 * takes long rests for as long, at least, and takes turns with what the connection is there for. */
#pragma once

#include "ordering/ordering.h"
#include "relay/base/arena.h"
#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/postgres/db.h"

struct queue;

void upkeep_open(struct queue *queue);
void upkeep_close(struct queue *queue);

/* Takes note of what claims have found. */
void upkeep_hear(struct queue *queue);

/* Chooses the task that is due; false: none is. `before_all`: of those that do not wait for settlements, or the others.
 */
bool upkeep_next(struct queue *queue, bool before_all, instant_us now);

/* The connection is new: the served table is announced in it, before anything else. */
void upkeep_connected(struct queue *queue, instant_us now);

/* The chosen task looks at rows of the queue's table. */
bool upkeep_reads_rows(const struct queue *queue);

/* The chosen task's statement, with parameters in `arena`. */
struct statement upkeep_begin(struct queue *queue, struct arena *arena, instant_us now);
void upkeep_take(struct queue *queue, const PGresult *res, instant_us now);

/* `failure` NULL: the task has succeeded. It is due again after its interval, or after as long as it took. */
void upkeep_end(struct queue *queue, const struct error *failure, instant_us now);

instant_us upkeep_due_at(const struct queue *queue);

/* While the queue rests, the served table is announced where that does not last. */
instant_us upkeep_serving_at(const struct queue *queue);
bool upkeep_next_at_rest(struct queue *queue, instant_us now);

/* When the queue must not rest any more, because a task is due that no notification announces. */
instant_us upkeep_rest_until(const struct queue *queue);

/* While the queue is paused: gives back events that are not under way. Call it for every turn, because claims that were
 * under way may still arrive. */
void upkeep_hold(struct queue *queue, instant_us now);
