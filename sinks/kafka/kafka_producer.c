#include "sinks/kafka/kafka_producer.h"

#include "relay/base/arena.h"
#include "relay/base/fault_point.h"
#include "sinks/kafka/kafka_conf.h"
#include "sinks/kafka/kafka_message.h"

#include <stdio.h>

/* With some brokers left, a partition without leader is normal for as long as an election takes (the controller
 * notices a dead broker after 9 s), and idempotence makes waiting free of duplicates. Giving up is not. */
#define STALLED_AFTER_US (10 * SECOND_US)
/* After a fatal error what is in flight may still be acked; after a purge the reports are already on their way. */
#define FATAL_GRACE_US SECOND_US
#define GIVE_UP_GRACE_US SECOND_US
#define PURGE_GRACE_US (500 * MS_US)
#define RENEW_PAUSE_US (100 * MS_US)
#define RENEW_PAUSE_MAX_US (5 * SECOND_US)
#define CLOSE_RESERVE_US (200 * MS_US)

/* ---- what is in librdkafka ---- */

/* sink_data of what is in librdkafka; in the delivery's arena. */
struct flight {
    struct delivery *before;
    void *owner;
};

static struct flight *flight_of(const struct delivery *d)
{
    return d->sink_data;
}

static void link_waiting(struct kafka_producer *p, struct delivery *d, void *owner)
{
    struct flight *flight = arena_alloc(d->arena, sizeof *flight);
    *flight = (struct flight){.owner = owner};
    d->sink_data = flight;
    d->next = p->waiting;
    if (d->next)
        flight_of(d->next)->before = d;
    p->waiting = d;
    p->waiting_count++;
}

void *kafka_producer_owner(const struct delivery *d)
{
    return flight_of(d)->owner;
}

static void report(struct kafka_producer *p, struct delivery *d, rd_kafka_resp_err_t code, rd_kafka_msg_status_t status)
{
    struct delivery *before = flight_of(d)->before;
    if (before)
        before->next = d->next;
    else
        p->waiting = d->next;
    if (d->next)
        flight_of(d->next)->before = before;
    p->waiting_count--;
    if (p->overdue && (code == RD_KAFKA_RESP_ERR__PURGE_QUEUE || code == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT))
        code = RD_KAFKA_RESP_ERR__MSG_TIMED_OUT;
    p->report(p->context, d, code, status);
}

static void report_all(struct kafka_producer *p)
{
    while (p->waiting)
        report(p, p->waiting, RD_KAFKA_RESP_ERR__PURGE_INFLIGHT, RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED);
}

/* ---- the handle's life ---- */

static rd_kafka_t *librdkafka_new(rd_kafka_conf_t *conf, struct error *err)
{
    char text[256];
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    if (!rk) {
        bool scarce = rd_kafka_last_error() == RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE; /* threads, for one */
        rd_kafka_conf_destroy(conf);
        error_set(err, scarce ? ERROR_RESOURCE : ERROR_CONFIG, "librdkafka %s: %s", rd_kafka_version_str(), text);
    }
    return rk;
}

bool kafka_producer_check(const rd_kafka_conf_t *conf, struct error *err)
{
    rd_kafka_conf_t *alone = rd_kafka_conf_dup(conf);
    /* Without brokers there is nobody to call. */
    rd_kafka_conf_set(alone, "bootstrap.servers", NULL, NULL, 0);
    rd_kafka_t *rk = librdkafka_new(alone, err);
    if (rk)
        rd_kafka_destroy(rk);
    return rk != NULL;
}

static bool handle_new(struct kafka_producer *p, struct error *err)
{
    p->rk = librdkafka_new(rd_kafka_conf_dup(p->conf), err);
    if (!p->rk)
        return false;
    const uint64_t one = 1;
    p->queue = rd_kafka_queue_get_main(p->rk);
    rd_kafka_set_log_queue(p->rk, NULL); /* NULL: the main queue */
    rd_kafka_queue_io_event_enable(p->queue, p->wake_fd, &one, sizeof one);
    p->state = KAFKA_RUNNING;
    p->troubled = p->all_down = p->doubtful = p->purged = p->overdue = false;
    p->until = INSTANT_NEVER;
    return true;
}

static void queue_leave(struct kafka_producer *p)
{
    if (!p->queue)
        return;
    rd_kafka_queue_io_event_enable(p->queue, -1, NULL, 0);
    rd_kafka_queue_destroy(p->queue);
    p->queue = NULL;
}

/* Hands the handle, and the probes that use it, to a thread that ends them. */
static struct kafka_background *handle_give_away(struct kafka_producer *p)
{
    struct kafka_background *before[KAFKA_PROBES_MAX + 1 + KAFKA_LEAVING_MAX];
    size_t n = p->leave ? p->leave(p->context, before) : 0;
    if (p->check)
        before[n++] = p->check;
    p->check = NULL;
    n += kafka_probes_leave(&p->probes, before + n);
    queue_leave(p);
    struct kafka_background *background = kafka_background_destroy(p->rk, before, n, p->wake_fd);
    p->rk = NULL;
    return background;
}

static struct kafka_background **free_retired_slot(struct kafka_producer *p)
{
    struct kafka_background **slot = NULL;
    for (size_t i = 0; i < KAFKA_RETIRED_MAX; i++) {
        if (p->retired[i] && kafka_background_done(p->retired[i])) {
            kafka_background_free(p->retired[i], INSTANT_NEVER);
            p->retired[i] = NULL;
        }
        if (!p->retired[i])
            slot = &p->retired[i];
    }
    return slot;
}

static int64_t renew_pause_us(unsigned renewals)
{
    if (renewals <= 1)
        return 0;
    int64_t pause_us = RENEW_PAUSE_US;
    for (unsigned i = 2; i < renewals && pause_us < RENEW_PAUSE_MAX_US; i++)
        pause_us *= 2;
    return pause_us < RENEW_PAUSE_MAX_US ? pause_us : RENEW_PAUSE_MAX_US;
}

static void retire(struct kafka_producer *p, instant_us now)
{
    struct kafka_background **slot = free_retired_slot(p);
    FAULT_POINT("kafka.retire");
    if (!slot) {
        /* That many handles hang in their destruction: making more would only add to them. */
        snprintf(p->cause, sizeof p->cause, "%d producers before this one have not ended yet", KAFKA_RETIRED_MAX);
        p->stuck = true;
        p->until = now + SECOND_US;
        return;
    }
    p->stuck = false;
    *slot = handle_give_away(p);
    p->state = KAFKA_RETIRED;
    p->until = now + renew_pause_us(++p->renewals);
}

static void renew(struct kafka_producer *p, instant_us now)
{
    struct error err;
    FAULT_POINT("kafka.renew");
    if (handle_new(p, &err)) {
        if (p->stuck)
            p->cause[0] = '\0'; /* it is over */
        p->stuck = false;
        return;
    }
    (void)!kafka_conf_check_files(p->conf, &err); /* which says more, where it is one of them */
    snprintf(p->cause, sizeof p->cause, "%s", err.text);
    p->stuck = true;
    p->until = now + renew_pause_us(++p->renewals);
}

static void purge(struct kafka_producer *p, instant_us now)
{
    rd_kafka_purge(p->rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
    p->state = KAFKA_DRAINING;
    p->purged = true;
    p->until = now + PURGE_GRACE_US;
}

void kafka_producer_give_up(struct kafka_producer *p, instant_us now)
{
    if (p->state != KAFKA_RUNNING)
        return;
    snprintf(p->cause, sizeof p->cause, "not acknowledged in time");
    p->state = KAFKA_DRAINING;
    p->purged = false;
    p->overdue = true;
    p->until = now + GIVE_UP_GRACE_US;
}

/* ---- events ---- */

/* A broker that takes a record says where. Without an offset, the ack is librdkafka's conclusion from a later record of
 * this producer that was taken, or from a number that the broker calls a duplicate. But to a partition that knows
 * nothing of the producer yet, a broker takes any number as the first: a record that a lost connection had swallowed
 * was seen to be reported as persisted, and is in no log. Of a batch only the first lacks its offset for certain: the
 * others count on from there. `before` is the last guess. */
static bool is_guess(const rd_kafka_message_t *message, rd_kafka_message_t *before)
{
    bool goes_on =
        before->rkt == message->rkt && before->partition == message->partition && before->offset + 1 == message->offset;
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR || (message->offset >= 0 && !goes_on))
        return false;
    *before = *message;
    return true;
}

static void take_reports(struct kafka_producer *p, rd_kafka_event_t *event, instant_us now)
{
    const rd_kafka_message_t *message;
    rd_kafka_message_t guess = {.rkt = NULL};
    while ((message = rd_kafka_event_message_next(event))) {
        FAULT_POINT("kafka.report");
        if (is_guess(message, &guess)) {
            snprintf(p->cause, sizeof p->cause, "a connection was lost before the ack");
            report(p, message->_private, RD_KAFKA_RESP_ERR__TRANSPORT, RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED);
            continue;
        }
        if (message->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
            p->news_at = now;
            p->troubled = p->all_down = p->doubtful = false;
            p->renewals = 0;
            if (p->state == KAFKA_RUNNING)
                p->cause[0] = '\0';
        }
        report(p, message->_private, message->err, rd_kafka_message_status(message));
    }
}

static void take_fatal(struct kafka_producer *p, instant_us now)
{
    char text[200] = "";
    rd_kafka_resp_err_t code = rd_kafka_fatal_error(p->rk, text, sizeof text);
    snprintf(p->cause, sizeof p->cause, "the producer failed for good and is replaced: %s: %s", rd_kafka_err2name(code),
             text);
    if (p->state == KAFKA_RUNNING) {
        p->state = KAFKA_DRAINING;
        p->purged = false;
        p->until = now + FATAL_GRACE_US;
    }
}

static void take_error(struct kafka_producer *p, rd_kafka_event_t *event, instant_us now)
{
    rd_kafka_resp_err_t code = rd_kafka_event_error(event);
    if (code == RD_KAFKA_RESP_ERR__FATAL || rd_kafka_event_error_is_fatal(event)) {
        take_fatal(p, now);
        return;
    }
    p->troubled = true;
    if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN)
        p->all_down = true;
    else if (p->state == KAFKA_RUNNING)
        snprintf(p->cause, sizeof p->cause, "%s", rd_kafka_event_error_string(event));
}

static void take_events(struct kafka_producer *p, instant_us now)
{
    rd_kafka_event_t *event;
    while (p->queue && (event = rd_kafka_queue_poll(p->queue, 0))) {
        if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_DR)
            take_reports(p, event, now);
        else if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_ERROR)
            take_error(p, event, now);
        rd_kafka_event_destroy(event);
    }
}

/* ---- the contract ---- */

bool kafka_producer_open(struct kafka_producer *p, struct error *err)
{
    return handle_new(p, err);
}

/* What failed while nothing was on its way may be over for hours: librdkafka says neither that, nor a second time that
 * all brokers are down. So that is no reason to give up any more, but one to ask sooner whether anybody answers. */
static void begin_waiting(struct kafka_producer *p, instant_us now)
{
    p->news_at = now;
    p->doubtful |= p->all_down;
    p->troubled = p->all_down = false;
}

rd_kafka_resp_err_t kafka_producer_send(struct kafka_producer *p, struct delivery *d, rd_kafka_headers_t *headers,
                                        struct kafka_target target, instant_us now)
{
    if (p->state != KAFKA_RUNNING)
        return RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN;
    /* A queue with nothing in it is never full: the sink takes that for an event that is too large for it. */
    if (p->waiting_count > 0 && FAULT_ERROR("kafka.produce"))
        return RD_KAFKA_RESP_ERR__QUEUE_FULL;
    const struct event *event = d->event;
    /* The RD_KAFKA_V_ macros spelled out: they are statement expressions, which -Wpedantic refuses. Not produceva():
     * in 2.0.2 it frees headers twice when the topic is not there. */
    rd_kafka_resp_err_t code = rd_kafka_producev(p->rk, RD_KAFKA_VTYPE_TOPIC, d->destination.data,               //
                                                 RD_KAFKA_VTYPE_PARTITION, target.partition,                     //
                                                 RD_KAFKA_VTYPE_KEY, event->key.data, event->key.size,           //
                                                 RD_KAFKA_VTYPE_VALUE, event->payload.data, event->payload.size, //
                                                 RD_KAFKA_VTYPE_TIMESTAMP, kafka_message_timestamp_ms(event),    //
                                                 RD_KAFKA_VTYPE_HEADERS, headers,                                //
                                                 RD_KAFKA_VTYPE_MSGFLAGS, RD_KAFKA_MSG_F_COPY,                   //
                                                 RD_KAFKA_VTYPE_OPAQUE, (void *)d, RD_KAFKA_VTYPE_END);
    if (code == RD_KAFKA_RESP_ERR_NO_ERROR) {
        if (p->waiting_count == 0)
            begin_waiting(p, now);
        link_waiting(p, d, target.owner);
        FAULT_POINT("kafka.produced");
    } else if (code == RD_KAFKA_RESP_ERR__FATAL) {
        take_fatal(p, now);
    }
    return code;
}

/* When to stop waiting for acks. */
static instant_us give_up_at(const struct kafka_producer *p)
{
    if (p->state != KAFKA_RUNNING || p->waiting_count == 0 || !p->troubled)
        return INSTANT_NEVER;
    return p->news_at + (p->all_down ? p->down_after_us : STALLED_AFTER_US);
}

/* A broker that hangs keeps its connections open, and nothing fails. */
static instant_us check_at(const struct kafka_producer *p)
{
    if (p->state != KAFKA_RUNNING || p->waiting_count == 0 || p->check)
        return INSTANT_NEVER;
    return (p->news_at > p->checked_at ? p->news_at : p->checked_at) + (p->doubtful ? 1 : 2) * p->down_after_us;
}

static void check(struct kafka_producer *p, instant_us now)
{
    if (now >= check_at(p)) {
        p->checked_at = now;
        p->check = kafka_background_metadata(p->rk, p->waiting->destination.data, p->wake_fd);
    }
    if (!p->check || !kafka_background_done(p->check))
        return;
    bool answered = kafka_background_answered(p->check) || p->news_at > p->checked_at;
    kafka_background_free(p->check, INSTANT_NEVER);
    p->check = NULL;
    if (answered || p->state != KAFKA_RUNNING)
        return;
    if (!p->troubled)
        snprintf(p->cause, sizeof p->cause, "no ack for %lld ms and no answer to a request for metadata",
                 (long long)((now - p->news_at) / MS_US));
    purge(p, now);
}

static void drain(struct kafka_producer *p, instant_us now)
{
    if (p->waiting_count > 0 && now >= p->until) {
        if (p->purged) {
            /* A thread of the old handle hangs, most likely in a name lookup. Do not wait for it, and never look at
             * its reports again. */
            queue_leave(p);
            report_all(p);
        } else {
            purge(p, now);
        }
    }
    if (p->waiting_count == 0)
        retire(p, now);
}

void kafka_producer_serve(struct kafka_producer *p, instant_us now)
{
    take_events(p, now);
    if (now >= give_up_at(p) || FAULT_ERROR("kafka.serve"))
        purge(p, now);
    check(p, now);
    if (p->state == KAFKA_DRAINING)
        drain(p, now);
    if (p->state == KAFKA_RETIRED && now >= p->until)
        renew(p, now);
}

instant_us kafka_producer_deadline(const struct kafka_producer *p)
{
    return p->state == KAFKA_RUNNING ? instant_min(give_up_at(p), check_at(p)) : p->until;
}

enum reach kafka_producer_probe(struct kafka_producer *p, const char *topic, instant_us now, struct error *err)
{
    enum reach reach = p->stuck ? REACH_NO : REACH_PENDING;
    if (p->state == KAFKA_RUNNING)
        reach = kafka_probes_ask(&p->probes, p->rk, topic, p->wake_fd, now);
    if (reach == REACH_NO)
        error_set(err, ERROR_UNREACHABLE, "%s", p->cause[0] ? p->cause : "no answer to a request for metadata");
    return reach;
}

/* ---- the end ---- */

static void flush_until(struct kafka_producer *p, instant_us deadline)
{
    for (instant_us now = clock_now(); p->queue && p->waiting_count > 0 && now < deadline; now = clock_now()) {
        rd_kafka_event_t *event = rd_kafka_queue_poll(p->queue, (int)((deadline - now) / MS_US) + 1);
        if (event && rd_kafka_event_type(event) == RD_KAFKA_EVENT_DR)
            take_reports(p, event, now);
        if (event)
            rd_kafka_event_destroy(event);
    }
}

void kafka_producer_close(struct kafka_producer *p, instant_us now, instant_us deadline)
{
    if (p->rk) {
        flush_until(p, deadline - CLOSE_RESERVE_US);
        if (p->waiting_count > 0)
            purge(p, now);
        flush_until(p, deadline - CLOSE_RESERVE_US / 2);
        queue_leave(p);
        report_all(p);
        kafka_background_free(handle_give_away(p), deadline);
    }
    for (size_t i = 0; i < KAFKA_RETIRED_MAX; i++)
        kafka_background_free(p->retired[i], deadline);
}
