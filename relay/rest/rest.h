/* relay/rest/rest.h -- a queue that has nothing to do rests: nothing is sent for it until a producer, or the clock,
 * wakes it.
 *
 * DESIGN. A relay that rests holds two advisory locks, shared, on the waking connection (waking.h): one for the queue's
 * table, one for the queue. A producer's trigger tries to get the same lock for itself alone; where that fails it
 * notifies. So nobody pays for notifications while all relays are awake, and no flag can be left behind by a crash.
 *
 * No event is lost between the last look and the first notification:
 *   1. the waking connection listens: LISTEN is committed;
 *   2. the locks are taken: who writes from now on notifies;
 *   3. whoever wrote before holds RowExclusiveLock on the table since then: those transactions are waited for;
 *   4. what they committed the last look sees, whose snapshot is younger. It looks at all of the table, and finds out
 *      what becomes due by itself, and when;
 *   5. it has found nothing, no notification has come since 2., and the locks are held still: the queue rests.
 * While only a few events come, the locks are held on: every commit is announced. Behind a claim that took all that a
 * notification was for, a look is enough, and the queue rests again. So at ten events a second each is claimed at once,
 * and the relay does not poll between them.
 * While it rests, the relay asks once a minute whether the queue still may, and whether the waking connection answers.
 *
 * A lost connection ends it at once, because the locks are gone with the session. What the relay itself finds out
 * (another queue has handed on an event) moves pace.poll_at, which ends it, too.
 *
 *   rest_open -> (rest_hear -> claims -> rest_step -> side connection -> rest_prepare)* */
#pragma once

#include "relay/base/clock.h"

#include <stdbool.h>

struct pollset;
struct queue;

/* `never`: this queue does not rest. */
void rest_open(struct queue *queue, bool never);

/* At the begin of a turn: wakes the queue when it is time to, or there is something to do. */
void rest_hear(struct queue *queue, instant_us now);

/* One step on the way to rest. The side connection is to have its turn behind it. */
void rest_step(struct queue *queue, instant_us now);
void rest_prepare(struct queue *queue, struct pollset *ps, instant_us now);

/* The waking connection's words: there is something to do; it has the locks, or not, or has them no more. */
void rest_notified(struct queue *queue, bool of_events, instant_us now); /* else of waits, pauses or schedules */
void rest_lock_answered(struct queue *queue, bool locked, int backend_pid, int64_t number);
void rest_lock_moved(struct queue *queue, bool asked);
void rest_lost(struct queue *queue, instant_us now);

/* How often a relay that rests looks whether it would still be woken. */
int64_t rest_check_us(const struct queue *queue);
