/* relay/hold/lease.h -- keys that are held by leases, not by the locks of a claim: `ordering: lease`.
 *
 *   a claim has arrived: lease_add -> lease_check -> COMMIT -> lease_begin, or lease_abandon
 *   and for every turn: lease_hold; on the side connection: lease_is_due -> lease_renewal -> lease_take ->
 * lease_renewed
 *
 * A claim leases its keys at once, in its own transaction, and delivers when that is committed: no connection waits
 * for a delivery. From then on the side connection has the batch (queue->holds.leased): it renews the terms at a third
 * of them and settles lanes as they finish, each statement by the tokens. A lane whose token is not in its entry any
 * more is lost: nothing more of it is sent, and nothing is written about it.
 *
 * Terms are the database's. Our own clock counts from when a term was asked for and decides only about ourselves: when
 * to renew, from two thirds of the term on, to send nothing more, and right before its end, to call back what is under
 * way. With the side connection's backend end the leases, too, so that another relay takes over at once when this one
 * has ended. */
#pragma once

#include "relay/base/arena.h"
#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/base/statement.h"
#include "relay/queue/queue_parts.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

struct batch;
struct db;
struct queue;
struct round;

/* How many more lanes its sink has a place for; 0 as well while those that are held take up three quarters of what a
 * connection may have in memory. */
int64_t lease_room(const struct queue *queue);

/* Adds to the round being built, as its first statement: leases every key of the claim. */
bool lease_add(struct queue *queue, struct batch *batches, struct round *round, struct db *db,
               struct error *err) MUST_CHECK;
bool lease_check(const struct round *round, const PGresult *res, struct error *err) MUST_CHECK; /* its result */

/* That round has committed: the claim's events are delivered. Unless the backend that was to own the leases is lost
 * since: then the leases may have ended with it, and are given back. */
void lease_begin(struct queue *queue, struct batch **batches, instant_us sent_at, instant_us now);

/* That round has failed, or may have: no event of the claim is sent, and keys that may be leased are given back. */
void lease_abandon(struct queue *queue, struct batch **batches, instant_us sent_at, instant_us now);

/* Stops events that are not sent yet if their term may be over before they would be done, and calls back events under
 * way whose term is about to be over: another relay may begin with them. */
void lease_hold(struct queue *queue, instant_us now);
instant_us lease_over_at(const struct queue *queue); /* when something has to be called back next */

/* By our clock: no other relay can have a leased key of this batch. */
bool lease_is_sure(const struct queue *queue, const struct batch *batch, instant_us now);

/* ---- on the side connection ---- */

bool lease_is_due(const struct queue *queue, instant_us now);
instant_us lease_due_at(const struct queue *queue);

/* The statement that renews every lease; its result; and the round's end, `failed` or not. */
struct statement lease_renewal(struct queue *queue, struct arena *arena, instant_us now);
void lease_take(struct queue *queue, const PGresult *res, instant_us now);
void lease_renewed(struct queue *queue, bool failed, instant_us now);

/* A settlement has met a lease that is not ours any more: the next renewal shows which one. Until then no leased key is
 * settled. */
void lease_maybe_lost(struct queue *queue, instant_us now);

/* The side connection is lost, and is up again. */
void lease_backend_lost(struct queue *queue, instant_us now);
void lease_backend_up(struct queue *queue, instant_us now);
