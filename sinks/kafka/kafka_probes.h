/* sinks/kafka/kafka_probes.h -- questions whether a topic can be written to, some at a time. All zero is none. */
#pragma once

#include "sinks/kafka/kafka_background.h"

#define KAFKA_PROBES_MAX 8

struct kafka_probe {
    struct kafka_background *background; /* NULL: free */
    char *topic;
    instant_us started;
};

struct kafka_probes {
    struct kafka_probe entries[KAFKA_PROBES_MAX];
};

/* As probe() in sinks/sink.h; "" is the cluster as a whole. */
enum reach kafka_probes_ask(struct kafka_probes *probes, rd_kafka_t *rk, const char *topic, int wake_fd,
                            instant_us now);

/* The handle goes: forgets all questions. Puts those under way into `before`, which has room for KAFKA_PROBES_MAX, and
 * returns how many. */
size_t kafka_probes_leave(struct kafka_probes *probes, struct kafka_background *before[]);
