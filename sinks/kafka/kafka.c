/* Apache Kafka and what speaks its protocol, through librdkafka.
 *
 * DESIGN. Three producers. `plain` takes events of which no two in flight are of one key; `runs` takes several of a key
 * at once, see kafka_runs.h. A broker refuses a batch as a whole, so when a batch comes back as too large or invalid,
 * its events go once more through `single`, one message a batch: there the innocent are acked and the one at fault is
 * told apart. Of a run only the first does; the others are given back. No event of the batch was stored by then, and no
 * other event of these keys is in flight, so neither order nor count suffers. */
#include "sinks/kafka/kafka_conf.h"
#include "sinks/kafka/kafka_message.h"
#include "sinks/kafka/kafka_producer.h"
#include "sinks/kafka/kafka_runs.h"
#include "sinks/kafka/kafka_verdict.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const struct setting kafka_setting_rows[] = {
    {"properties", SETTING_MAP, offsetof(struct kafka_settings, properties), .required = true,
     .help = "of librdkafka; bootstrap.servers is required"},
    {"sasl_password", SETTING_SECRET, offsetof(struct kafka_settings, sasl_password), .help = "sets sasl.password"},
    {"ssl_key_password", SETTING_SECRET, offsetof(struct kafka_settings, ssl_key_password),
     .help = "sets ssl.key.password"},
    {"down_after", SETTING_DURATION, offsetof(struct kafka_settings, down_after_us), "2s", .min = 100 * MS_US,
     .max = 60 * SECOND_US, .help = "without any broker, events are given back after so long"},
    {"key_batches", SETTING_BOOL, offsetof(struct kafka_settings, key_batches), "true",
     .help = "several events of a key in one record batch"},
    {.name = NULL},
};

struct kafka {
    struct sink sink;
    const struct kafka_settings *settings;
    rd_kafka_conf_t *confs[KAFKA_USES]; /* by enum kafka_use */
    int64_t message_max_bytes;
    int wake_fd;
    struct kafka_producer plain, single;
    struct kafka_topics topics; /* that `plain` was told to look for: librdkafka 2.0 takes its time otherwise */
    struct kafka_runs runs;
    bool single_open;
    struct delivery *refused; /* have their verdict in sink_data; given by the next progress() */
    instant_us now;           /* of the call in progress, for reports */
};

struct refusal {
    enum verdict verdict;
    struct error cause;
};

static const struct kafka_target anywhere = {RD_KAFKA_PARTITION_UA, NULL};

/* ---- verdicts ---- */

static void describe(const struct kafka *kafka, const struct delivery *d, rd_kafka_resp_err_t code,
                     struct kafka_verdict verdict, struct error *err)
{
    const struct event *event = d->event;
    const char *cause = kafka->plain.cause[0] ? kafka->plain.cause : kafka->runs.producer.cause;
    bool local_size = code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE &&
                      event->key.size + event->payload.size > (size_t)kafka->message_max_bytes;
    if (local_size)
        error_set(err, verdict.kind, "topic %s: the event has %zu bytes, more than message.max.bytes %lld",
                  d->destination.data, event->key.size + event->payload.size, (long long)kafka->message_max_bytes);
    else if (verdict.kind == ERROR_UNREACHABLE && cause[0])
        error_set(err, verdict.kind, "topic %s: %s: %s", d->destination.data, rd_kafka_err2str(code), cause);
    else
        error_set(err, verdict.kind, "topic %s: %s (%s)", d->destination.data, rd_kafka_err2str(code),
                  rd_kafka_err2name(code));
}

static void resolve(struct kafka *kafka, struct delivery *d, rd_kafka_resp_err_t code, struct kafka_verdict verdict)
{
    if (verdict.verdict == VERDICT_ACKED) {
        delivery_resolve(d, VERDICT_ACKED, NULL);
        return;
    }
    struct error cause;
    describe(kafka, d, code, verdict, &cause);
    delivery_resolve(d, verdict.verdict, &cause);
}

static bool send_single(struct kafka *kafka, struct delivery *d)
{
    if (!kafka->single_open)
        kafka->single_open = kafka_producer_open(&kafka->single, NULL);
    rd_kafka_headers_t *headers = kafka->single_open ? kafka_message_headers(d->event, NULL) : NULL;
    if (!headers)
        return false;
    if (kafka_producer_send(&kafka->single, d, headers, anywhere, kafka->now) == RD_KAFKA_RESP_ERR_NO_ERROR)
        return true;
    rd_kafka_headers_destroy(headers);
    return false;
}

static void on_plain_report(void *context, struct delivery *d, rd_kafka_resp_err_t code, rd_kafka_msg_status_t status)
{
    struct kafka *kafka = context;
    struct kafka_verdict verdict = kafka_verdict_of(code, status);
    if (verdict.whole_batch) {
        if (send_single(kafka, d))
            return;
        verdict.verdict = VERDICT_RETRY; /* innocent until tried alone */
    }
    resolve(kafka, d, code, verdict);
}

static void on_single_report(void *context, struct delivery *d, rd_kafka_resp_err_t code, rd_kafka_msg_status_t status)
{
    resolve(context, d, code, kafka_verdict_of(code, status));
}

static void on_run_report(void *context, struct delivery *d, rd_kafka_resp_err_t code, rd_kafka_msg_status_t status,
                          bool behind)
{
    struct kafka_verdict verdict = kafka_verdict_of(code, status);
    if (!behind || verdict.verdict == VERDICT_ACKED)
        on_plain_report(context, d, code, status);
    else
        delivery_fail(d, verdict.verdict == VERDICT_UNKNOWN ? VERDICT_UNKNOWN : VERDICT_RETRY, ERROR_BYSTANDER,
                      "topic %s: in one batch with an event of its key before it that failed: %s", d->destination.data,
                      rd_kafka_err2name(code));
}

/* Why an event was not even taken. */
static enum verdict explain_refusal(const struct kafka *kafka, const struct delivery *d, rd_kafka_resp_err_t code,
                                    struct error *err)
{
    if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
        error_set(err, ERROR_REFUSED, "topic %s: the event has %zu bytes, more than queue.buffering.max.kbytes allows",
                  d->destination.data, d->event->payload.size);
        return VERDICT_REJECTED;
    }
    struct kafka_verdict verdict = kafka_verdict_of(code, RD_KAFKA_MSG_STATUS_NOT_PERSISTED);
    describe(kafka, d, code, verdict, err);
    return verdict.verdict;
}

static void on_run_refusal(void *context, struct delivery *d, rd_kafka_resp_err_t code)
{
    struct error cause;
    enum verdict verdict = explain_refusal(context, d, code, &cause);
    delivery_resolve(d, verdict, &cause);
}

static size_t on_plain_leave(void *context, struct kafka_background *before[])
{
    struct kafka *kafka = context;
    before[0] = kafka_topics_leave(&kafka->topics);
    return before[0] ? 1 : 0;
}

/* ---- submit ---- */

static void refuse(struct kafka *kafka, struct delivery *d, enum verdict verdict, const struct error *cause)
{
    struct refusal *refusal = arena_alloc(d->arena, sizeof *refusal);
    *refusal = (struct refusal){verdict, *cause};
    d->sink_data = refusal;
    d->next = kafka->refused;
    kafka->refused = d;
}

static void resolve_refused(struct kafka *kafka)
{
    struct delivery *d = kafka->refused;
    kafka->refused = NULL;
    for (struct delivery *next; d; d = next) {
        next = d->next;
        const struct refusal *refusal = d->sink_data;
        delivery_resolve(d, refusal->verdict, &refusal->cause);
    }
}

/* False: full, offer it again. */
static bool submit_one(struct kafka *kafka, struct delivery *d, bool idle, instant_us now)
{
    struct error err;
    rd_kafka_headers_t *headers = NULL;
    if (!kafka_message_check_topic(d->destination, &err) || !(headers = kafka_message_headers(d->event, &err))) {
        refuse(kafka, d, VERDICT_REJECTED, &err);
        return true;
    }
    rd_kafka_resp_err_t code = kafka_producer_send(&kafka->plain, d, headers, anywhere, now);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        kafka_topics_find(&kafka->topics, kafka->plain.rk, d->destination.data, kafka->wake_fd, now);
        return true;
    }
    rd_kafka_headers_destroy(headers);
    if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL && !idle)
        return false;
    enum verdict verdict = explain_refusal(kafka, d, code, &err);
    refuse(kafka, d, verdict, &err);
    return true;
}

static size_t run_length(struct delivery *const ds[], size_t n)
{
    size_t length = 1;
    while (length < n && ds[length]->joined)
        length++;
    return length;
}

static bool submit_run(struct kafka *kafka, struct delivery *const ds[], size_t length, instant_us now)
{
    return length > 1 && kafka_message_check_topic(ds[0]->destination, NULL) &&
           kafka_runs_add(&kafka->runs, ds, length, now);
}

static size_t kafka_submit(struct sink *sink, struct delivery *const ds[], size_t n, instant_us now)
{
    struct kafka *kafka = (struct kafka *)sink;
    size_t taken = 0;
    while (taken < n) {
        size_t length = run_length(ds + taken, n - taken);
        if (submit_run(kafka, ds + taken, length, now)) {
            taken += length;
            continue;
        }
        if (!submit_one(kafka, ds[taken], sink->in_flight + taken == 0, now))
            break;
        taken++;
        if (length > 1)
            break; /* no runs now: what is left of this one comes again after the verdict */
    }
    return taken;
}

/* ---- the loop ---- */

static void set_traits(struct kafka *kafka)
{
    bool runs = kafka->settings->key_batches && kafka_runs_possible(&kafka->runs);
    kafka->sink.traits = runs ? SINK_TAKES_RUNS : 0;
}

static void kafka_prepare(struct sink *sink, struct pollset *ps)
{
    struct kafka *kafka = (struct kafka *)sink;
    pollset_add(ps, kafka->wake_fd, POLLIN);
    pollset_deadline(ps, kafka->refused ? 0 : kafka_producer_deadline(&kafka->plain));
    kafka_runs_prepare(&kafka->runs, ps);
    if (kafka->single_open)
        pollset_deadline(ps, kafka_producer_deadline(&kafka->single));
}

static void kafka_progress(struct sink *sink, const struct pollset *ps, instant_us now)
{
    (void)ps; /* an empty queue costs one uncontended lock: cheaper than to reason about missed wake-ups */
    struct kafka *kafka = (struct kafka *)sink;
    kafka->now = now;
    uint64_t count;
    ssize_t ignored = read(kafka->wake_fd, &count, sizeof count);
    (void)ignored;
    resolve_refused(kafka);
    kafka_topics_turn(&kafka->topics);
    kafka_producer_serve(&kafka->plain, now);
    kafka_runs_progress(&kafka->runs, now);
    if (kafka->single_open)
        kafka_producer_serve(&kafka->single, now);
    set_traits(kafka);
}

static enum reach kafka_probe(struct sink *sink, struct span destination, instant_us now, struct error *err)
{
    struct kafka *kafka = (struct kafka *)sink;
    if (destination.size > 0 && !kafka_message_check_topic(destination, NULL))
        return REACH_YES; /* the event will be rejected, and it alone */
    return kafka_producer_probe(&kafka->plain, destination.data, now, err);
}

/* ---- open and close ---- */

static void kafka_free(struct kafka *kafka)
{
    for (size_t use = 0; use < KAFKA_USES; use++)
        if (kafka->confs[use])
            rd_kafka_conf_destroy(kafka->confs[use]);
    if (kafka->wake_fd >= 0)
        close(kafka->wake_fd);
    free(kafka);
}

static void producer_init(struct kafka *kafka, struct kafka_producer *p, enum kafka_use use, kafka_report *report)
{
    *p = (struct kafka_producer){.conf = kafka->confs[use],
                                 .wake_fd = kafka->wake_fd,
                                 .down_after_us = kafka->settings->down_after_us,
                                 .report = report,
                                 .context = kafka};
}

static void runs_init(struct kafka *kafka)
{
    const struct kafka_runs_settings settings = {
        .conf = kafka->confs[KAFKA_RUNS],
        .wake_fd = kafka->wake_fd,
        .down_after_us = kafka->settings->down_after_us,
        .timeout_us = kafka_conf_number(kafka->confs[KAFKA_PLAIN], "message.timeout.ms") * MS_US,
        .refused = on_run_refusal,
        .reported = on_run_report,
        .context = kafka};
    kafka_runs_init(&kafka->runs, &settings);
    set_traits(kafka);
}

static struct sink *kafka_open(const char *name, const void *settings, struct error *err)
{
    struct kafka *kafka = memory_new(sizeof *kafka);
    kafka->settings = settings;
    kafka->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (kafka->wake_fd < 0) {
        error_set(err, ERROR_RESOURCE, "eventfd: %s", strerror(errno));
        goto failed;
    }
    for (size_t use = 0; use < KAFKA_USES; use++) {
        kafka->confs[use] = kafka_conf_new(settings, (enum kafka_use)use, err);
        if (!kafka->confs[use])
            goto failed;
    }
    kafka->message_max_bytes = kafka_conf_number(kafka->confs[KAFKA_PLAIN], "message.max.bytes");
    producer_init(kafka, &kafka->plain, KAFKA_PLAIN, on_plain_report);
    kafka->plain.leave = on_plain_leave;
    producer_init(kafka, &kafka->single, KAFKA_SINGLE, on_single_report);
    runs_init(kafka);
    if (kafka_producer_open(&kafka->plain, err))
        return &kafka->sink;
failed:
    error_prefix(err, "sink %s", name);
    kafka_free(kafka);
    return NULL;
}

static bool kafka_check(const char *name, const void *settings, struct error *err)
{
    rd_kafka_conf_t *conf = kafka_conf_new(settings, KAFKA_PLAIN, err);
    bool good = conf && kafka_producer_check(conf, err);
    if (conf)
        rd_kafka_conf_destroy(conf);
    return good || error_prefix(err, "sink %s", name);
}

/* Within 1 s in all. */
static void kafka_close(struct sink *sink)
{
    struct kafka *kafka = (struct kafka *)sink;
    kafka->now = clock_now();
    resolve_refused(kafka);
    kafka_producer_close(&kafka->plain, kafka->now, kafka->now + 400 * MS_US);
    kafka_runs_close(&kafka->runs, clock_now(), clock_now() + 350 * MS_US);
    if (kafka->single_open)
        kafka_producer_close(&kafka->single, kafka->now, clock_now() + 250 * MS_US);
    kafka_free(kafka);
}

const struct sink_type sink_kafka = {
    .name = "kafka",
    .help = "topics of Apache Kafka, by librdkafka's idempotent producer",
    .settings = kafka_setting_rows,
    .settings_size = sizeof(struct kafka_settings),
    .needs_destination = true,
    .run = {.events_min = 2, .events_max = 1024, .bytes_max = (size_t)512 * 1024},
    .max_in_flight = 8192,
    .open = kafka_open,
    .check = kafka_check,
    .exposed = kafka_conf_exposed,
    .submit = kafka_submit,
    .prepare = kafka_prepare,
    .progress = kafka_progress,
    .close = kafka_close,
    .probe = kafka_probe,
};
