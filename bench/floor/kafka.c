/* How fast can a table be emptied while a bare producer sends as many records of the same bytes?
 *
 *   kafka CONNINFO SQL CONNECTIONS BOOTSTRAP TOPIC COUNT KEYS PAYLOADS
 *
 * does both at the same time, with nothing between them, and prints `ROWS SECONDS`: from when all are connected to when
 * the last row is deleted and the last record is acked. The producer has the properties that matter of the relay's
 * (sinks/kafka/kafka_conf.c), but waits longer for a batch: it has nothing to lose by that. The file PAYLOADS has one
 * in each line; the records have them in turn, as one that is always the same would be compressed to nothing. */
#include "bench/floor/drainers.h"
#include "bench/floor/session.h"
#include "relay/base/arena.h"
#include "relay/base/clock.h"

#include <inttypes.h>
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONNECT_MS 10000
#define FLUSH_MS 600000
#define PAYLOADS_MAX 100000

static const char *const properties[][2] = {
    {"enable.idempotence", "true"},   {"acks", "all"}, {"partitioner", "murmur2_random"}, {"compression.codec", "lz4"},
    {"socket.nagle.disable", "true"},
};

struct payloads {
    char **lines; /* until the program ends */
    size_t count;
};

struct acks {
    int64_t acked;
};

static struct payloads read_payloads(const char *path)
{
    FILE *file = fopen(path, "r");
    if (!file)
        session_fail("PAYLOADS", path);
    struct payloads ret = {.lines = memory_array(PAYLOADS_MAX, sizeof *ret.lines)};
    size_t room = 0;
    ssize_t length;
    while (ret.count < PAYLOADS_MAX && (length = getline(&ret.lines[ret.count], &room, file)) > 0) {
        ret.lines[ret.count++][length - 1] = '\0'; /* instead of the line's end */
        room = 0;
    }
    fclose(file);
    if (ret.count == 0)
        session_fail("PAYLOADS", "an empty file");
    return ret;
}

static void on_ack(rd_kafka_t *kafka, const rd_kafka_message_t *message, void *data)
{
    (void)kafka;
    if (message->err)
        session_fail("record", rd_kafka_err2str(message->err));
    ((struct acks *)data)->acked++;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value)
{
    char reason[256];
    if (rd_kafka_conf_set(conf, name, value, reason, sizeof reason) != RD_KAFKA_CONF_OK)
        session_fail(name, reason);
}

/* Connected, and with the topic's metadata. */
static rd_kafka_t *open_producer(const char *bootstrap, const char *topic, struct acks *acks)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", bootstrap);
    for (size_t i = 0; i < sizeof properties / sizeof *properties; i++)
        set(conf, properties[i][0], properties[i][1]);
    rd_kafka_conf_set_dr_msg_cb(conf, on_ack);
    rd_kafka_conf_set_opaque(conf, acks);
    char reason[256];
    rd_kafka_t *kafka = rd_kafka_new(RD_KAFKA_PRODUCER, conf, reason, sizeof reason);
    if (!kafka)
        session_fail("producer", reason);
    rd_kafka_topic_t *handle = rd_kafka_topic_new(kafka, topic, NULL);
    const struct rd_kafka_metadata *metadata;
    rd_kafka_resp_err_t code = rd_kafka_metadata(kafka, 0, handle, &metadata, CONNECT_MS);
    if (code)
        session_fail("metadata", rd_kafka_err2str(code));
    rd_kafka_metadata_destroy(metadata);
    rd_kafka_topic_destroy(handle);
    return kafka;
}

/* What the relay sends of such an event: key, payload, and the headers `id` (a UUID) and `type`. */
static void produce(rd_kafka_t *kafka, const char *topic, int64_t number, int64_t keys, const char *payload)
{
    char key[32], id[40];
    int key_size = snprintf(key, sizeof key, "order-%" PRId64, 1 + number % keys);
    snprintf(id, sizeof id, "%08" PRIx64 "-7b8e-4d55-9a35-2f6f0a3c9f11", (uint64_t)number);
    const rd_kafka_vu_t message[] = {
        {.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = topic},
        {.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {key, (size_t)key_size}},
        {.vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = {(void *)(uintptr_t)payload, strlen(payload)}},
        {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
        {.vtype = RD_KAFKA_VTYPE_HEADER, .u.header = {"id", id, -1}},
        {.vtype = RD_KAFKA_VTYPE_HEADER, .u.header = {"type", "order.changed", -1}},
    };
    rd_kafka_resp_err_t code;
    do {
        rd_kafka_error_t *error = rd_kafka_produceva(kafka, message, sizeof message / sizeof *message);
        code = error ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
        rd_kafka_error_destroy(error);
        rd_kafka_poll(kafka, code == RD_KAFKA_RESP_ERR__QUEUE_FULL ? 10 : 0);
    } while (code == RD_KAFKA_RESP_ERR__QUEUE_FULL);
    if (code)
        session_fail("produce", rd_kafka_err2str(code));
}

int main(int argc, char **argv)
{
    if (argc != 9)
        session_fail("usage", "kafka CONNINFO SQL CONNECTIONS BOOTSTRAP TOPIC COUNT KEYS PAYLOADS");
    int64_t count = strtoll(argv[6], NULL, 10), keys = strtoll(argv[7], NULL, 10);
    if (count < 1 || keys < 1)
        session_fail("COUNT and KEYS", "from 1 on");
    struct payloads payloads = read_payloads(argv[8]);
    struct acks acks = {0};
    rd_kafka_t *kafka = open_producer(argv[4], argv[5], &acks);
    struct drainers *drainers = drainers_open(argv[1], argv[2], strtol(argv[3], NULL, 10));
    instant_us begun = clock_now();
    drainers_start(drainers);
    for (int64_t i = 0; i < count; i++)
        produce(kafka, argv[5], i, keys, payloads.lines[(size_t)i % payloads.count]);
    if (rd_kafka_flush(kafka, FLUSH_MS) != RD_KAFKA_RESP_ERR_NO_ERROR || acks.acked != count)
        session_fail("flush", "not every record was acked");
    int64_t rows = drainers_join(drainers);
    printf("%" PRId64 " %.6f\n", rows, (double)(clock_now() - begun) / SECOND_US);
    rd_kafka_destroy(kafka);
    return 0;
}
