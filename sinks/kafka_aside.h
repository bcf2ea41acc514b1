/* sinks/kafka_aside.h -- the two librdkafka calls that block, each made on a thread of its own.
 *
 * Asking for metadata waits for a broker; destroying a handle waits for its threads, and one of those may sit in a
 * name lookup for half a minute.
 *
 *   kafka_aside_metadata -> kafka_aside_done* -> kafka_aside_reach, kafka_aside_answered -> kafka_aside_free
 *   kafka_aside_destroy -> kafka_aside_done* -> kafka_aside_free */
#ifndef SINKS_KAFKA_ASIDE_H
#define SINKS_KAFKA_ASIDE_H

#include "relay/base/clock.h"
#include "sinks/sink.h"

#include <librdkafka/rdkafka.h>

struct kafka_aside;

/* Asks the cluster about a topic ("": whether it is there at all) and brings what `rk` knows about it up to date.
 * `wake_fd` is an eventfd that gets its 1 when the answer is there. `rk` must stay until then, or be handed to
 * kafka_aside_destroy() with this as one of `before`. NULL when there is no thread to be had. */
struct kafka_aside *kafka_aside_metadata(rd_kafka_t *rk, const char *topic, int wake_fd);

/* Destroys `rk` after the `n` calls in `before` have returned; takes ownership of all of them. Without a thread it
 * does so at once, blocking, and returns NULL. */
struct kafka_aside *kafka_aside_destroy(rd_kafka_t *rk, struct kafka_aside *const before[], size_t n, int wake_fd);

bool kafka_aside_done(struct kafka_aside *aside);

/* What a finished kafka_aside_metadata() found: REACH_YES when the topic can be written to, as far as one can see. */
enum reach kafka_aside_reach(const struct kafka_aside *aside);

/* Did any broker answer at all, whatever it said about the topic? */
bool kafka_aside_answered(const struct kafka_aside *aside);

/* Waits until it is done, at most to `deadline`; after that leaves it alone, and its memory to it. librdkafka 2.8 takes
 * a second to destroy an idempotent producer, 2.0 a millisecond. */
void kafka_aside_free(struct kafka_aside *aside, instant_us deadline);

#endif
