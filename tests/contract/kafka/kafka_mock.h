/* tests/contract/kafka/kafka_mock.h -- the Kafka sink on librdkafka's mock cluster.
 *
 *   kafka_begin, or kafka_mock_start -> kafka_property* -> contract_open;  then kafka_end */
#ifndef TESTS_CONTRACT_KAFKA_MOCK_H
#define TESTS_CONTRACT_KAFKA_MOCK_H

#include "tests/contract/sink_contract.h"

#include <librdkafka/rdkafka.h>

#include <librdkafka/rdkafka_mock.h> /* after the other */

#define TOPIC "orders" /* four partitions */
#define PATIENCE_MS 30000

extern const struct sink_type sink_kafka;

/* The one of the running test; the mock lives in a client of its own, so that it outlives the sink's producers. */
extern rd_kafka_mock_cluster_t *kafka_mock;
extern struct contract_setup kafka_setup;

void kafka_mock_start(struct contract_setup *setup, int brokers);
void kafka_mock_stop(struct contract_setup *setup);

/* One more librdkafka property for the next contract_open(); "bootstrap.servers" is there and may be replaced. */
void kafka_property(const char *name, const char *value);

/* The next `times` produce requests fail with `code`. */
void kafka_refuse_produce(rd_kafka_resp_err_t code, int times);

/* The ids of the events in the log of `topic`, which has one partition, in its order; at most `max`. */
size_t kafka_mock_read(const char *topic, int64_t ids[], size_t max);

struct contract *kafka_begin(void); /* one broker, no further properties */
void kafka_end(struct contract *c);

/* Everything there is to set up (connection, producer id, metadata) has happened. */
void kafka_warm_up(struct contract *c);

void verdict_is(const struct delivery *d, enum verdict verdict, enum error_kind kind);
void text_has(const struct delivery *d, const char *part);

#endif
