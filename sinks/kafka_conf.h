/* sinks/kafka_conf.h -- the user's `properties:` on top of our defaults, without what would break a guarantee. */
#ifndef SINKS_KAFKA_CONF_H
#define SINKS_KAFKA_CONF_H

#include "relay/base/error.h"
#include "relay/base/setting.h"

#include <librdkafka/rdkafka.h>

struct kafka_settings {
    struct setting_map properties;
    char *sasl_password;
    char *ssl_key_password;
    int64_t down_after_us;
};

/* `single`: one message a batch, for finding out which one of a refused batch was at fault. NULL and *err
 * (ERROR_CONFIG) when librdkafka or we refuse a property. The result is the caller's: rd_kafka_conf_destroy(). */
rd_kafka_conf_t *kafka_conf_new(const struct kafka_settings *settings, bool single, struct error *err) MUST_CHECK;

/* A whole-number property as librdkafka understood it, or 0. */
int64_t kafka_conf_number(const rd_kafka_conf_t *conf, const char *property);

#endif
