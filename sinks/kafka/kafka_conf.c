#include "sinks/kafka/kafka_conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct property {
    const char *name, *value;
};

/* Where we differ from librdkafka's own defaults. docs/sinks/kafka.md says why in more words. */
static const struct property defaults[] = {
    {"enable.idempotence", "true"},        /* its own retries neither duplicate nor reorder */
    {"partitioner", "murmur2_random"},     /* the same partition as Java, Debezium and Kafka Streams */
    {"message.timeout.ms", "30000"},       /* an event must not hold its claim for five minutes */
    {"linger.ms", "1"},                    /* one event of a key at a time: what waits is the whole key */
    {"compression.codec", "lz4"},          /* built in everywhere, cheap */
    {"allow.auto.create.topics", "false"}, /* a wrong destination is an error, not a new topic */
    {"topic.metadata.propagation.max.ms", "2000"},
    {"topic.metadata.refresh.interval.ms", "30000"},
    {"queue.buffering.max.messages", "100000"}, /* beyond a usual max_in_flight; the engine bounds the bytes */
    {"queue.buffering.max.kbytes", "262144"},
    {"socket.keepalive.enable", "true"},
    {"socket.nagle.disable", "true"}, /* default only since 2.10 */
    {"reconnect.backoff.ms", "100"},
    {"reconnect.backoff.max.ms", "1000"}, /* back within seconds of the broker's return */
    {"client.id", "pgcourier"},
    {"log.queue", "true"}, /* the log comes to our queue, not to stderr */
};

/* What a property must be in the end, whatever was given. */
static const struct {
    const char *name, *value, *why;
} musts[] = {
    {"enable.idempotence", "true", "without it a retry of librdkafka can reorder and duplicate events"},
    {"delivery.report.only.error", "false", "without delivery reports nothing is ever acknowledged"},
    {"log.queue", "true", "the log of librdkafka would go to stderr"},
};

/* What a property must not be. */
static const struct {
    const char *name, *value, *why;
} bans[] = {
    {"partitioner", "random",
     "events of one key would go to many partitions and lose their order; use murmur2_random, consistent_random or "
     "fnv1a_random, which spread only events without a key"},
};

/* Files, or folders. librdkafka's own words for one that it cannot read do not say which it is. */
static const char *const files[] = {"ssl.ca.location",       "ssl.certificate.location", "ssl.key.location",
                                    "ssl.keystore.location", "ssl.crl.location",         NULL};

static bool set(rd_kafka_conf_t *conf, const char *name, const char *value, struct error *err)
{
    char text[256];
    if (rd_kafka_conf_set(conf, name, value, text, sizeof text) == RD_KAFKA_CONF_OK)
        return true;
    return error_set(err, ERROR_CONFIG, "kafka properties: %s: %s; see CONFIGURATION.md of librdkafka %s", name, text,
                     rd_kafka_version_str());
}

static bool set_secret(rd_kafka_conf_t *conf, const char *name, const char *value, struct error *err)
{
    /* Not through set(): its text quotes the value. */
    if (!value || rd_kafka_conf_set(conf, name, value, NULL, 0) == RD_KAFKA_CONF_OK)
        return true;
    return error_set(err, ERROR_CONFIG, "kafka: librdkafka %s refuses the given %s", rd_kafka_version_str(), name);
}

static bool set_all(rd_kafka_conf_t *conf, const struct kafka_settings *settings, struct error *err)
{
    for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; i++)
        if (!set(conf, defaults[i].name, defaults[i].value, err))
            return false;
    for (size_t i = 0; i < settings->properties.count; i++) {
        const struct setting_pair *pair = &settings->properties.pairs[i];
        if (!strstr(pair->name, "password") && !strstr(pair->name, "secret") && !strstr(pair->name, ".pem")
                ? !set(conf, pair->name, pair->value, err)
                : !set_secret(conf, pair->name, pair->value, err))
            return false;
    }
    return set_secret(conf, "sasl.password", settings->sasl_password, err) &&
           set_secret(conf, "ssl.key.password", settings->ssl_key_password, err);
}

/* Empty when the property is not set. */
static const char *get(const rd_kafka_conf_t *conf, const char *name, char *text, size_t size)
{
    text[0] = '\0';
    if (rd_kafka_conf_get(conf, name, text, &size) != RD_KAFKA_CONF_OK)
        text[0] = '\0';
    return text;
}

bool kafka_conf_check_files(const rd_kafka_conf_t *conf, struct error *err)
{
    char path[512];
    for (size_t i = 0; files[i]; i++)
        if (get(conf, files[i], path, sizeof path)[0] && strcmp(path, "probe") != 0 && access(path, R_OK) != 0)
            return error_set(err, ERROR_CONFIG, "kafka properties: %s: cannot read %s: %s", files[i], path,
                             strerror(errno));
    return true;
}

static bool check(const rd_kafka_conf_t *conf, struct error *err)
{
    char text[512];
    for (size_t i = 0; i < sizeof musts / sizeof musts[0]; i++)
        if (strcmp(get(conf, musts[i].name, text, sizeof text), musts[i].value) != 0)
            return error_set(err, ERROR_CONFIG, "kafka properties: %s must be %s: %s", musts[i].name, musts[i].value,
                             musts[i].why);
    for (size_t i = 0; i < sizeof bans / sizeof bans[0]; i++)
        if (strcmp(get(conf, bans[i].name, text, sizeof text), bans[i].value) == 0)
            return error_set(err, ERROR_CONFIG, "kafka properties: %s must not be %s: %s", bans[i].name, bans[i].value,
                             bans[i].why);
    if (get(conf, "transactional.id", text, sizeof text)[0])
        return error_set(err, ERROR_CONFIG,
                         "kafka properties: transactional.id is not supported: events are sent outside transactions; "
                         "remove it");
    if (kafka_conf_number(conf, "message.timeout.ms") <= 0)
        return error_set(err, ERROR_CONFIG,
                         "kafka properties: message.timeout.ms must not be 0: an undeliverable event would wait for "
                         "ever");
    if (!get(conf, "bootstrap.servers", text, sizeof text)[0] && kafka_conf_number(conf, "test.mock.num.brokers") == 0)
        return error_set(err, ERROR_CONFIG,
                         "kafka properties: bootstrap.servers is missing; give the brokers, e.g. bootstrap.servers: "
                         "\"kafka-1:9092,kafka-2:9092\"");
    return kafka_conf_check_files(conf, err);
}

/* What each use needs, whatever was given. */
static const struct {
    enum kafka_use use;
    const char *name, *value;
} uses[] = {
    {KAFKA_SINGLE, "batch.num.messages", "1"},
    {KAFKA_SINGLE, "linger.ms", "0"},
    /* Its gates decide when a batch goes, and when one is given up, as a whole. */
    {KAFKA_RUNS, "linger.ms", "0"},
    {KAFKA_RUNS, "message.timeout.ms", "0"},
};

rd_kafka_conf_t *kafka_conf_new(const struct kafka_settings *settings, enum kafka_use use, struct error *err)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (!set_all(conf, settings, err) || !check(conf, err))
        goto failed;
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++)
        if (uses[i].use == use && !set(conf, uses[i].name, uses[i].value, err))
            goto failed;
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR | RD_KAFKA_EVENT_LOG);
    return conf;
failed:
    rd_kafka_conf_destroy(conf);
    return NULL;
}

int64_t kafka_conf_number(const rd_kafka_conf_t *conf, const char *property)
{
    char text[64];
    return strtoll(get(conf, property, text, sizeof text), NULL, 10);
}

kafka_partitioner *kafka_conf_partitioner(const rd_kafka_conf_t *conf)
{
    static const struct {
        const char *name;
        kafka_partitioner *partitioner;
    } known[] = {
        {"consistent", rd_kafka_msg_partitioner_consistent}, {"consistent_random", rd_kafka_msg_partitioner_consistent},
        {"murmur2", rd_kafka_msg_partitioner_murmur2},       {"murmur2_random", rd_kafka_msg_partitioner_murmur2},
        {"fnv1a", rd_kafka_msg_partitioner_fnv1a},           {"fnv1a_random", rd_kafka_msg_partitioner_fnv1a},
    };
    char name[32];
    get(conf, "partitioner", name, sizeof name);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].partitioner;
    return NULL;
}

/* ---- who may listen ---- */

/* The first row that is so decides. */
static const struct {
    const char *name, *value, *setting, *why, *remedy;
} exposures[] = {
    {"security.protocol", "plaintext", "properties.security.protocol",
     "is not encrypted: security.protocol is plaintext", "security.protocol: ssl"},
    {"security.protocol", "sasl_plaintext", "properties.security.protocol",
     "is not encrypted: security.protocol is sasl_plaintext", "security.protocol: sasl_ssl"},
    {"enable.ssl.certificate.verification", "false", "properties.enable.ssl.certificate.verification",
     "is encrypted, but the brokers' certificates are not verified: enable.ssl.certificate.verification is false",
     "remove it, and give ssl.ca.location if need be"},
    {"ssl.endpoint.identification.algorithm", "none", "properties.ssl.endpoint.identification.algorithm",
     "is encrypted, but the names in the brokers' certificates are not verified: "
     "ssl.endpoint.identification.algorithm is none",
     "ssl.endpoint.identification.algorithm: https"},
};

/* [PROTOCOL://]HOST[:PORT], an IPv6 address in brackets */
static struct span host_of_broker(struct span broker)
{
    const char *scheme = memmem(broker.data, broker.size, "://", 3);
    const char *from = scheme ? scheme + 3 : broker.data, *end = broker.data + broker.size;
    while (from < end && *from == ' ')
        from++;
    const char *bracket = from < end && *from == '[' ? memchr(from, ']', (size_t)(end - from)) : NULL;
    const char *colon = bracket ? bracket + 1 : memchr(from, ':', (size_t)(end - from));
    return (struct span){from, (size_t)((colon ? colon : end) - from)};
}

static void add_brokers(const rd_kafka_conf_t *conf, struct exposure *exposure)
{
    char brokers[4096];
    for (const char *at = get(conf, "bootstrap.servers", brokers, sizeof brokers); *at;) {
        size_t size = strcspn(at, ",");
        exposure_add_host(exposure, host_of_broker((struct span){at, size}));
        at += size + (at[size] == ',');
    }
}

bool kafka_conf_exposed(const void *settings, struct exposure *ret)
{
    struct error err;
    char value[32];
    rd_kafka_conf_t *conf = kafka_conf_new(settings, KAFKA_PLAIN, &err);
    if (!conf)
        return false;
    *ret = (struct exposure){0};
    for (size_t i = 0; !ret->why && i < sizeof exposures / sizeof exposures[0]; i++)
        if (strcmp(get(conf, exposures[i].name, value, sizeof value), exposures[i].value) == 0)
            *ret = (struct exposure){exposures[i].setting, exposures[i].why, exposures[i].remedy, ""};
    if (ret->why)
        add_brokers(conf, ret);
    rd_kafka_conf_destroy(conf);
    return ret->hosts[0] != '\0';
}
