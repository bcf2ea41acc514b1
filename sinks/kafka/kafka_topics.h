/* sinks/kafka/kafka_topics.h -- what the producer of runs knows of topics and their partitions.
 *
 * A topic is asked for when it is first wanted, and again from time to time. All of it goes with the producer's
 * handle. */
#pragma once

#include "sinks/delivery_queue.h"
#include "sinks/kafka/kafka_background.h"

/* Whether librdkafka may send what it has of a partition. On the way from one to the other it is either. */
enum kafka_gate { KAFKA_GATE_OPEN, KAFKA_GATE_CLOSING, KAFKA_GATE_CLOSED, KAFKA_GATE_OPENING };

struct kafka_partition {
    struct kafka_topic *topic;
    int32_t number;
    enum kafka_gate gate;
    struct delivery_queue waiting; /* for the next batch */

    /* The batch: what librdkafka has of this partition. */
    const struct delivery *first;
    size_t in_batch, batch_bytes;
    bool failed;  /* some of it */
    bool unknown; /* to librdkafka */

    instant_us since; /* the last time anything happened, while there is something to wait for */
    bool busy;        /* in the list of those */
    struct kafka_partition *next_busy;
};

struct kafka_topic {
    char *name;
    rd_kafka_topic_t *rkt;
    int32_t count; /* of partitions; 0: not known, or there is nothing to write to */
    struct kafka_partition **partitions;
    int32_t room; /* in `partitions` */
    instant_us asked_at;

    /* A batch that was refused for its size makes the next ones smaller, for a while. */
    size_t batch_bytes;
    instant_us small_until;
    struct kafka_topic *next;
};

struct kafka_topics {
    struct kafka_topic *first; /* the one used last */
    size_t count;
    struct kafka_background *question; /* under way, about `asked` */
    struct kafka_topic *asked;
};

/* NULL: it is not known yet, or it cannot be written to. Asks if need be, over `rk`. */
struct kafka_topic *kafka_topics_find(struct kafka_topics *topics, rd_kafka_t *rk, const char *name, int wake_fd,
                                      instant_us now);

/* Takes the answer to a question, if there is one. */
void kafka_topics_turn(struct kafka_topics *topics);

/* `number` is below topic->count. */
struct kafka_partition *kafka_topic_partition(struct kafka_topic *topic, int32_t number);

/* How large the next batch may be: `most`, or less when one of that size was refused. */
size_t kafka_topic_batch_bytes(const struct kafka_topic *topic, size_t most, instant_us now);
void kafka_topic_refused(struct kafka_topic *topic, size_t bytes, instant_us now);

/* Frees everything but the question under way, which it returns: it uses the handle, or NULL. */
struct kafka_background *kafka_topics_leave(struct kafka_topics *topics);
