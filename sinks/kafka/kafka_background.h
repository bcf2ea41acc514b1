/* sinks/kafka/kafka_background.h -- the librdkafka calls that block, each made on a thread of its own.
 *
 * Asking for metadata waits for a broker; pausing and resuming partitions waits for librdkafka's main thread, which may
 * run kinit; destroying a handle waits for all its threads, and one of those may sit in a name lookup for half a
 * minute.
 *
 *   kafka_background_metadata -> kafka_background_done* -> kafka_background_reach, kafka_background_answered ->
 * kafka_background_free kafka_background_gates -> kafka_background_done* -> kafka_background_is_closed* ->
 * kafka_background_free kafka_background_destroy -> kafka_background_done* -> kafka_background_free */
#pragma once

#include "relay/base/clock.h"
#include "sinks/sink.h"

#include <librdkafka/rdkafka.h>

struct kafka_background;

/* Asks the cluster about a topic ("": whether it is there at all) and brings what `rk` knows about it up to date.
 * `wake_fd` is an eventfd that gets its 1 when the answer is there. `rk` must stay until then, or be handed to
 * kafka_background_destroy() with this as one of `before`. NULL when there is no thread to be had. */
struct kafka_background *kafka_background_metadata(rd_kafka_t *rk, const char *topic, int wake_fd);

/* Pauses the partitions of `close`, resumes those of `open` and has the brokers' threads look at them. Takes both lists
 * over. As kafka_background_metadata() otherwise, but NULL also frees the lists. */
struct kafka_background *kafka_background_gates(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *close,
                                                rd_kafka_topic_partition_list_t *open, int wake_fd);

/* Destroys `rk` after the `n` calls in `before` have returned; takes ownership of all of them. Without a thread it
 * does so at once, blocking, and returns NULL. */
struct kafka_background *kafka_background_destroy(rd_kafka_t *rk, struct kafka_background *const before[], size_t n,
                                                  int wake_fd);

bool kafka_background_done(struct kafka_background *background);

/* What a finished kafka_background_metadata() found: REACH_YES when the topic can be written to, as far as one can see.
 */
enum reach kafka_background_reach(const struct kafka_background *background);

/* How many partitions a finished kafka_background_metadata() found the topic to have; 0: one cannot write to it. */
int32_t kafka_background_partitions(const struct kafka_background *background);

/* Did a finished kafka_background_gates() pause this one? */
bool kafka_background_is_closed(const struct kafka_background *background, const char *topic, int32_t partition);

/* Did any broker answer at all, whatever it said about the topic? */
bool kafka_background_answered(const struct kafka_background *background);

/* Waits until it is done, at most to `deadline`; after that leaves it alone, and its memory to it. librdkafka 2.8 takes
 * a second to destroy an idempotent producer, 2.0 a millisecond. */
void kafka_background_free(struct kafka_background *background, instant_us deadline);
