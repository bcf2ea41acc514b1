/* sinks/kafka/kafka_conf.h -- the user's `properties:` on top of our defaults, without what would break a guarantee. */
#pragma once

#include "relay/base/error.h"
#include "relay/base/exposure.h"
#include "relay/base/setting.h"

#include <librdkafka/rdkafka.h>

struct kafka_settings {
    struct setting_map properties;
    char *sasl_password;
    char *ssl_key_password;
    int64_t down_after_us;
    bool key_batches;
};

/* What a producer is for. */
enum kafka_use {
    KAFKA_PLAIN,  /* events of which no two are of one key */
    KAFKA_SINGLE, /* one message a batch, for finding out which one of a refused batch was at fault */
    KAFKA_RUNS,   /* batches with several events of a key, see kafka_runs.h */
    KAFKA_USES
};

/* NULL and *err (ERROR_CONFIG) when librdkafka or we refuse a property. The result is the caller's:
 * rd_kafka_conf_destroy(). */
rd_kafka_conf_t *kafka_conf_new(const struct kafka_settings *settings, enum kafka_use use,
                                struct error *err) MUST_CHECK;

/* Can the files be read that it names? */
bool kafka_conf_check_files(const rd_kafka_conf_t *conf, struct error *err) MUST_CHECK;

/* A whole-number property as librdkafka understood it, or 0. */
int64_t kafka_conf_number(const rd_kafka_conf_t *conf, const char *property);

bool kafka_conf_exposed(const void *settings, struct exposure *ret); /* as sink_type.exposed */

/* Where a key goes; librdkafka's own, of which only key, its size and the number of partitions matter. */
typedef int32_t kafka_partitioner(const rd_kafka_topic_t *, const void *key, size_t key_size, int32_t partitions,
                                  void *, void *);

/* The one that the property `partitioner` names, for keys that are not empty. NULL: we do not know it. */
kafka_partitioner *kafka_conf_partitioner(const rd_kafka_conf_t *conf);
