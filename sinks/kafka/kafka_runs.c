#include "sinks/kafka/kafka_runs.h"

#include "sinks/kafka/kafka_message.h"

#define CHECK_US SECOND_US
/* What a request holds besides the records, but for the names of client and topic. */
#define REQUEST_BYTES 1024
#define NAMES_BYTES 1024

/* ---- verdicts ---- */

static void fell(struct delivery *d, const char *why)
{
    delivery_fail(d, VERDICT_RETRY, ERROR_BYSTANDER, "topic %s: not sent: %s", d->destination.data, why);
}

/* The rest of a run of which something failed. */
static void fail_followers(struct kafka_partition *partition)
{
    while (partition->waiting.first && partition->waiting.first->joined)
        fell(delivery_queue_pop(&partition->waiting), "an event of its key before it failed");
}

static void fail_waiting(struct kafka_partition *partition, const char *why)
{
    for (struct delivery *d; (d = delivery_queue_pop(&partition->waiting)) != NULL;)
        fell(d, why);
}

static bool is_for_size(rd_kafka_resp_err_t code)
{
    return code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE || code == RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE;
}

static void on_report(void *context, struct delivery *d, rd_kafka_resp_err_t code, rd_kafka_msg_status_t status)
{
    struct kafka_runs *runs = context;
    struct kafka_partition *partition = kafka_producer_owner(d);
    bool behind = d->joined && d != partition->first;
    if (is_for_size(code) && !partition->failed)
        kafka_topic_refused(partition->topic, partition->batch_bytes, runs->now);
    partition->failed |= code != RD_KAFKA_RESP_ERR_NO_ERROR;
    partition->since = runs->now;
    runs->settings.reported(runs->settings.context, d, code, status, behind);
    if (--partition->in_batch > 0)
        return;
    if (partition->failed)
        fail_followers(partition);
    partition->failed = false;
}

/* ---- partitions with something to do ---- */

static void make_busy(struct kafka_runs *runs, struct kafka_partition *partition, instant_us now)
{
    if (partition->busy)
        return;
    partition->busy = true;
    partition->since = now;
    partition->next_busy = runs->busy;
    runs->busy = partition;
}

static bool is_idle(const struct kafka_partition *partition)
{
    bool rests = partition->gate == KAFKA_GATE_CLOSED || (partition->gate == KAFKA_GATE_OPEN && partition->unknown);
    return partition->in_batch == 0 && !partition->waiting.first && rests;
}

static void forget_idle(struct kafka_runs *runs)
{
    for (struct kafka_partition **link = &runs->busy; *link;) {
        struct kafka_partition *partition = *link;
        if (is_idle(partition)) {
            partition->busy = false;
            *link = partition->next_busy;
        } else {
            link = &partition->next_busy;
        }
    }
}

/* ---- a batch ---- */

/* Not after anything else of its batch unless it fits. */
static bool fits(const struct kafka_runs *runs, const struct kafka_partition *partition, size_t bytes)
{
    size_t most = kafka_topic_batch_bytes(partition->topic, runs->batch_bytes, runs->now);
    return partition->in_batch == 0 ||
           (partition->in_batch < runs->batch_events && partition->batch_bytes + bytes <= most);
}

static void joined_batch(struct kafka_partition *partition, const struct delivery *d, size_t bytes)
{
    if (partition->in_batch++ == 0) {
        partition->first = d;
        partition->batch_bytes = 0;
    }
    partition->batch_bytes += bytes;
}

/* Hands the first that waits to librdkafka. False: it stays for the next batch. */
static bool put_into_batch(struct kafka_runs *runs, struct kafka_partition *partition)
{
    struct delivery *d = partition->waiting.first;
    struct error err;
    rd_kafka_headers_t *headers = kafka_message_headers(d->event, &err);
    size_t bytes = headers ? kafka_message_bytes(d->event, headers) : 0;
    if (headers && !fits(runs, partition, bytes)) {
        rd_kafka_headers_destroy(headers);
        return false;
    }
    delivery_queue_pop(&partition->waiting);
    if (!headers) {
        delivery_resolve(d, VERDICT_REJECTED, &err);
        fail_followers(partition);
        return true;
    }
    struct kafka_target target = {partition->number, partition};
    rd_kafka_resp_err_t code = kafka_producer_send(&runs->producer, d, headers, target, runs->now);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        joined_batch(partition, d, bytes);
        return true;
    }
    rd_kafka_headers_destroy(headers);
    if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL && runs->producer.waiting_count > 0) {
        delivery_queue_push_front(&partition->waiting, d);
        return false;
    }
    runs->settings.refused(runs->settings.context, d, code);
    fail_followers(partition);
    return true;
}

static void fill_batches(struct kafka_runs *runs)
{
    for (struct kafka_partition *partition = runs->busy; partition; partition = partition->next_busy) {
        if (partition->gate != KAFKA_GATE_CLOSED || partition->in_batch > 0 || !partition->waiting.first)
            continue;
        partition->since = runs->now;
        while (partition->waiting.first && put_into_batch(runs, partition))
            ;
    }
}

/* ---- gates ---- */

static void gate_moved(struct kafka_runs *runs, struct kafka_partition *partition)
{
    struct kafka_topic *topic = partition->topic;
    if (partition->gate == KAFKA_GATE_OPENING) {
        partition->gate = KAFKA_GATE_OPEN;
    } else if (partition->gate == KAFKA_GATE_CLOSING) {
        bool closed = kafka_background_is_closed(runs->gates, topic->name, partition->number);
        partition->gate = closed ? KAFKA_GATE_CLOSED : KAFKA_GATE_OPEN;
        partition->unknown = !closed;
        if (!closed) {
            topic->count = 0; /* it is not the topic that it was: ask again */
            fail_waiting(partition, "its partition is not there any more");
        }
    }
}

static void take_gates(struct kafka_runs *runs)
{
    if (!runs->gates || !kafka_background_done(runs->gates))
        return;
    for (struct kafka_partition *partition = runs->busy; partition; partition = partition->next_busy)
        gate_moved(runs, partition);
    kafka_background_free(runs->gates, INSTANT_NEVER);
    runs->gates = NULL;
}

/* A gate is closed as soon as its batch is done, so that the next one finds it closed. */
static bool should_close(const struct kafka_partition *partition)
{
    return partition->gate == KAFKA_GATE_OPEN && partition->in_batch == 0 &&
           (partition->waiting.first || !partition->unknown);
}

static bool should_open(const struct kafka_partition *partition)
{
    return partition->gate == KAFKA_GATE_CLOSED && partition->in_batch > 0;
}

static void undo(struct kafka_runs *runs)
{
    for (struct kafka_partition *partition = runs->busy; partition; partition = partition->next_busy)
        if (partition->gate == KAFKA_GATE_CLOSING)
            partition->gate = KAFKA_GATE_OPEN;
        else if (partition->gate == KAFKA_GATE_OPENING)
            partition->gate = KAFKA_GATE_CLOSED;
}

static void move_gates(struct kafka_runs *runs)
{
    size_t n = 0;
    for (const struct kafka_partition *partition = runs->busy; partition; partition = partition->next_busy)
        n += should_close(partition) || should_open(partition);
    if (n == 0 || runs->gates)
        return;
    rd_kafka_topic_partition_list_t *close = rd_kafka_topic_partition_list_new((int)n);
    rd_kafka_topic_partition_list_t *open = rd_kafka_topic_partition_list_new((int)n);
    for (struct kafka_partition *partition = runs->busy; partition; partition = partition->next_busy) {
        bool closing = should_close(partition);
        if (!closing && !should_open(partition))
            continue;
        rd_kafka_topic_partition_list_add(closing ? close : open, partition->topic->name, partition->number);
        partition->gate = closing ? KAFKA_GATE_CLOSING : KAFKA_GATE_OPENING;
    }
    runs->gates = kafka_background_gates(runs->producer.rk, close, open, runs->settings.wake_fd);
    if (!runs->gates)
        undo(runs);
}

/* ---- the end of the handle ---- */

static void fail_all_waiting(struct kafka_runs *runs)
{
    for (struct kafka_partition *partition = runs->busy; partition; partition = partition->next_busy)
        fail_waiting(partition, runs->producer.cause[0] ? runs->producer.cause : "the producer is being replaced");
}

static size_t on_leave(void *context, struct kafka_background *before[])
{
    struct kafka_runs *runs = context;
    size_t n = 0;
    fail_all_waiting(runs);
    runs->busy = NULL;
    if (runs->gates)
        before[n++] = runs->gates;
    runs->gates = NULL;
    struct kafka_background *question = kafka_topics_leave(&runs->topics);
    if (question)
        before[n++] = question;
    return n;
}

/* ---- the contract ---- */

void kafka_runs_init(struct kafka_runs *runs, const struct kafka_runs_settings *settings)
{
    runs->settings = *settings;
    runs->producer = (struct kafka_producer){.conf = settings->conf,
                                             .wake_fd = settings->wake_fd,
                                             .down_after_us = settings->down_after_us,
                                             .report = on_report,
                                             .leave = on_leave,
                                             .context = runs};
    runs->partitioner = kafka_conf_partitioner(settings->conf);
    int64_t bytes = kafka_conf_number(settings->conf, "message.max.bytes");
    int64_t batch = kafka_conf_number(settings->conf, "batch.size");
    bytes = (batch < bytes ? batch : bytes) - REQUEST_BYTES - NAMES_BYTES;
    runs->batch_bytes = bytes > 0 ? (size_t)bytes : 0;
    runs->batch_events = (size_t)kafka_conf_number(settings->conf, "batch.num.messages");
    runs->useless = !runs->partitioner;
}

bool kafka_runs_possible(const struct kafka_runs *runs)
{
    return !runs->useless && (!runs->open || runs->producer.state == KAFKA_RUNNING);
}

static bool open_once(struct kafka_runs *runs)
{
    if (!runs->open && !runs->useless) {
        runs->open = kafka_producer_open(&runs->producer, NULL);
        runs->useless = !runs->open;
    }
    return runs->open;
}

bool kafka_runs_add(struct kafka_runs *runs, struct delivery *const ds[], size_t n, instant_us now)
{
    struct span key = ds[0]->event->key;
    if (key.size == 0 || !open_once(runs) || runs->producer.state != KAFKA_RUNNING)
        return false;
    struct kafka_topic *topic =
        kafka_topics_find(&runs->topics, runs->producer.rk, ds[0]->destination.data, runs->settings.wake_fd, now);
    if (!topic)
        return false;
    int32_t number = runs->partitioner(NULL, key.data, key.size, topic->count, NULL, NULL);
    struct kafka_partition *partition = kafka_topic_partition(topic, number);
    for (size_t i = 0; i < n; i++)
        delivery_queue_push(&partition->waiting, ds[i]);
    make_busy(runs, partition, now);
    runs->urgent = true;
    return true;
}

void kafka_runs_prepare(const struct kafka_runs *runs, struct pollset *ps)
{
    if (!runs->open)
        return;
    pollset_deadline(ps, runs->urgent ? 0 : kafka_producer_deadline(&runs->producer));
    if (runs->busy)
        pollset_deadline(ps, runs->check_at);
}

static void give_up_late(struct kafka_runs *runs)
{
    for (const struct kafka_partition *partition = runs->busy; partition; partition = partition->next_busy)
        if ((partition->in_batch > 0 || partition->waiting.first) &&
            runs->now - partition->since > runs->settings.timeout_us)
            kafka_producer_give_up(&runs->producer, runs->now);
}

void kafka_runs_progress(struct kafka_runs *runs, instant_us now)
{
    if (!runs->open)
        return;
    runs->now = now;
    runs->urgent = false;
    runs->check_at = now + CHECK_US;
    kafka_topics_turn(&runs->topics);
    take_gates(runs);
    give_up_late(runs);
    kafka_producer_serve(&runs->producer, now);
    if (runs->producer.state != KAFKA_RUNNING) {
        fail_all_waiting(runs);
        return;
    }
    fill_batches(runs);
    move_gates(runs);
    forget_idle(runs);
}

void kafka_runs_close(struct kafka_runs *runs, instant_us now, instant_us deadline)
{
    if (!runs->open)
        return;
    runs->now = now;
    kafka_producer_close(&runs->producer, now, deadline);
}
