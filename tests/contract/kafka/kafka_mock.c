#include "tests/contract/kafka/kafka_mock.h"

#include "relay/base/arena.h"
#include "sinks/kafka/kafka_conf.h"

#include <stdlib.h>

#define REQUEST_PRODUCE 0 /* Kafka's number for it */

rd_kafka_mock_cluster_t *kafka_mock;

static rd_kafka_t *host;
static struct setting_pair pairs[5];
static struct kafka_settings settings;

static void start_one(struct contract_setup *setup)
{
    kafka_mock_start(setup, 1);
}

struct contract_setup kafka_setup = {.name = "kafka", .type = &sink_kafka, .start = start_one, .stop = kafka_mock_stop};

void kafka_mock_start(struct contract_setup *setup, int brokers)
{
    char text[256];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "log_level", "0", NULL, 0);
    host = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    ck_assert_msg(host != NULL, "%s", text);
    kafka_mock = rd_kafka_mock_cluster_new(host, brokers);
    ck_assert_ptr_nonnull(kafka_mock);
    ck_assert_int_eq(rd_kafka_mock_topic_create(kafka_mock, TOPIC, 4, 1), RD_KAFKA_RESP_ERR_NO_ERROR);
    settings = (struct kafka_settings){.properties = {pairs, 0}, .down_after_us = SECOND_US, .key_batches = true};
    kafka_property("bootstrap.servers", rd_kafka_mock_cluster_bootstraps(kafka_mock));
    setup->settings = &settings;
    setup->destination = TOPIC;
}

void kafka_mock_stop(struct contract_setup *setup)
{
    (void)setup;
    for (size_t i = 0; i < settings.properties.count; i++) {
        free(pairs[i].name);
        free(pairs[i].value);
    }
    rd_kafka_mock_cluster_destroy(kafka_mock);
    rd_kafka_destroy(host);
}

void kafka_property(const char *name, const char *value)
{
    size_t n = settings.properties.count++;
    ck_assert_uint_lt(n, sizeof pairs / sizeof pairs[0]);
    pairs[n] = (struct setting_pair){memory_text(name), memory_text(value)};
}

void kafka_refuse_produce(rd_kafka_resp_err_t code, int times)
{
    for (int i = 0; i < times; i++)
        rd_kafka_mock_push_request_errors(kafka_mock, REQUEST_PRODUCE, 1, code);
}

struct contract *kafka_begin(void)
{
    kafka_mock_start(&kafka_setup, 1);
    return contract_open(&kafka_setup);
}

void kafka_end(struct contract *c)
{
    contract_end(c);
    kafka_mock_stop(&kafka_setup);
}

static int64_t id_of(const rd_kafka_message_t *message)
{
    rd_kafka_headers_t *headers;
    const void *value;
    size_t size;
    ck_assert_int_eq(rd_kafka_message_headers(message, &headers), RD_KAFKA_RESP_ERR_NO_ERROR);
    ck_assert_int_eq(rd_kafka_header_get_last(headers, "id", &value, &size), RD_KAFKA_RESP_ERR_NO_ERROR);
    return strtoll(value, NULL, 10);
}

size_t kafka_mock_read(const char *topic, int64_t ids[], size_t max)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", rd_kafka_mock_cluster_bootstraps(kafka_mock), NULL, 0);
    rd_kafka_t *consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, NULL, 0);
    int64_t low, high;
    ck_assert_int_eq(rd_kafka_query_watermark_offsets(consumer, topic, 0, &low, &high, PATIENCE_MS), 0);
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(consumer, topic, NULL);
    ck_assert_int_eq(rd_kafka_consume_start(rkt, 0, low), 0);
    size_t n = 0;
    while (low + (int64_t)n < high) {
        rd_kafka_message_t *message = rd_kafka_consume(rkt, 0, PATIENCE_MS);
        ck_assert(message && message->err == RD_KAFKA_RESP_ERR_NO_ERROR && n < max);
        ids[n++] = id_of(message);
        rd_kafka_message_destroy(message);
    }
    rd_kafka_consume_stop(rkt, 0);
    rd_kafka_topic_destroy(rkt);
    rd_kafka_destroy(consumer);
    return n;
}

void kafka_warm_up(struct contract *c)
{
    struct delivery *d = contract_add(c, NULL, span_of("warm"));
    ck_assert(contract_run(c, PATIENCE_MS));
    verdict_is(d, VERDICT_ACKED, ERROR_NONE);
}

void verdict_is(const struct delivery *d, enum verdict verdict, enum error_kind kind)
{
    ck_assert_msg(d->verdict == verdict && (d->cause ? d->cause->kind : ERROR_NONE) == kind, "%s, %s: %s",
                  verdict_name(d->verdict), error_kind_name(d->cause ? d->cause->kind : ERROR_NONE),
                  d->cause ? d->cause->text : "");
}

void text_has(const struct delivery *d, const char *part)
{
    ck_assert_ptr_nonnull(d->cause);
    ck_assert_msg(strstr(d->cause->text, part) != NULL, "\"%s\" is not in: %s", part, d->cause->text);
}
