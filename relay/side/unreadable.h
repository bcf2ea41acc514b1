/* relay/side/unreadable.h -- rows that cannot be read.
 *
 * A claim's statements fail as a whole if the queue's condition, or a column, cannot be computed for one row. Then the
 * side connection searches for that row (unreadable_search.h):
 *
 *   unreadable_claim_failed, twice -> unreadable_begin -> unreadable_take -> unreadable_end -> ... until it is found
 *
 * From then on the queue's statements are guarded (ordering/guarded_text.h): the row is the queue's and is not tried,
 * its key is delivered up to it and waits there like one whose event was refused. Before a failure is counted the row
 * is tried again, on the side connection; when it can be read it is a row like any other. */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/base/statement.h"
#include "relay/queue/queue_parts.h"

#include <libpq-fe.h>

struct claim_plan;
struct lane;
struct queue;
struct round;

bool unreadable_open(struct queue *queue, struct error *err) MUST_CHECK;
void unreadable_close(struct queue *queue);

/* The round of a claim with this plan has failed. */
void unreadable_claim_failed(struct queue *queue, const struct claim_plan *plan, const struct round *round,
                             instant_us now);

/* The round's settlement was refused. True: the cause may be a row behind those to be settled, for which a search has
 * begun; none of those is to blame, and the settlement may pass when the search is over. */
bool unreadable_settle_failed(struct queue *queue, const struct round *round, instant_us now);

/* Claims wait for the search under way, but no longer than until then. 0: there is none to wait for. */
instant_us unreadable_claims_at(const struct queue *queue);

/* A claim has brought events. */
void unreadable_claimed(struct queue *queue);

/* The claim that was sent at `sent_at` has read of `lane`, which is not NULL, up to event `id` of its row's, which
 * could not be read and has failed so often: what will be written down of it. */
void unreadable_met(struct queue *queue, struct lane *lane, unsigned failures, instant_us sent_at);

/* Statements on the side connection: whether there is one to be sent, and when; that; a result of it, or with by_row
 * one row; and how it ended, `failure` NULL: well. */
instant_us unreadable_due_at(const struct queue *queue);
struct statement unreadable_begin(struct queue *queue, struct arena *arena, instant_us now);
void unreadable_take(struct queue *queue, const PGresult *res);
void unreadable_end(struct queue *queue, const struct error *failure, instant_us now);

/* The connection is lost: the search under way is given up. */
void unreadable_abort(struct queue *queue);
