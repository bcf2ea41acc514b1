/* sinks/kafka/kafka_producer.h -- one librdkafka producer that is replaced when it is beyond use.
 *
 *   kafka_producer_open -> (kafka_producer_send* -> kafka_producer_serve)* -> kafka_producer_close
 *
 * DESIGN. A producer is RUNNING until one of two things happens: librdkafka calls it fatal, or the cluster is gone and
 * deliveries would sit in it while the engine holds a transaction for them. Then it is DRAINING: what it holds is
 * purged and reported, within a second or two. With nothing left it is RETIRED: a thread of its own destroys the old
 * handle, because that can block, and after a pause that grows a new handle takes over. Everything runs on the
 * caller's thread but that call and the questions to the cluster. Payloads are copied into librdkafka, so a handle that
 * is still being destroyed never looks at memory of a delivery that has its verdict. */
#pragma once

#include "sinks/kafka/kafka_background.h"
#include "sinks/kafka/kafka_probes.h"
#include "sinks/sink.h"

#include <librdkafka/rdkafka.h>

#define KAFKA_RETIRED_MAX 4
#define KAFKA_LEAVING_MAX 2

enum kafka_state { KAFKA_RUNNING, KAFKA_DRAINING, KAFKA_RETIRED };

/* Where in its topic an event goes, and what its report is to remind of. */
struct kafka_target {
    int32_t partition; /* RD_KAFKA_PARTITION_UA: where the partitioner wants it */
    void *owner;
};

/* Says what became of one delivery. */
typedef void kafka_report(void *context, struct delivery *d, rd_kafka_resp_err_t code, rd_kafka_msg_status_t status);

/* The handle goes: whatever else holds on to it is given up. Puts calls under way into `before`, at most
 * KAFKA_LEAVING_MAX, and returns how many. */
typedef size_t kafka_leave(void *context, struct kafka_background *before[]);

struct kafka_producer {
    const rd_kafka_conf_t *conf; /* borrowed; each handle gets a copy */
    int wake_fd;                 /* borrowed; an eventfd */
    int64_t down_after_us;
    kafka_report *report;
    kafka_leave *leave; /* or NULL */
    void *context;      /* for both */

    enum kafka_state state;
    rd_kafka_t *rk; /* NULL when RETIRED */
    rd_kafka_queue_t *queue;
    struct delivery *waiting; /* in librdkafka: list by next, back links from sink_data */
    size_t waiting_count;

    instant_us news_at;             /* the last ack, or the first send after there was nothing to wait for */
    bool troubled;                  /* a connection failed since the last ack */
    bool all_down;                  /* and so did all others */
    bool doubtful;                  /* all_down was so before the oldest of `waiting`, and nobody has acked since */
    bool purged;                    /* DRAINING: do not wait for acks any more */
    bool overdue;                   /* DRAINING: because of what was not acked in time */
    instant_us until;               /* DRAINING: then harder measures; RETIRED: then a new handle */
    struct kafka_background *check; /* under way: does anybody answer? */
    instant_us checked_at;
    unsigned renewals; /* since the last ack */
    bool stuck;        /* not RUNNING, and it is not known how long that will last: `cause` says why */
    char cause[256];   /* the last trouble in librdkafka's words; empty: none since an ack */

    struct kafka_probes probes;
    struct kafka_background *retired[KAFKA_RETIRED_MAX]; /* handles being destroyed */
};

/* Does librdkafka make a producer of this? It reads the files that `conf` names, and calls nobody. */
bool kafka_producer_check(const rd_kafka_conf_t *conf, struct error *err) MUST_CHECK;

/* `p` is zeroed but for the first group of fields. False and *err (ERROR_CONFIG) when librdkafka refuses the
 * configuration. */
bool kafka_producer_open(struct kafka_producer *p, struct error *err) MUST_CHECK;

/* Hands one event over; topic and headers are checked by then. On NO_ERROR `d` is reported later and `headers` are
 * gone, otherwise both stay with the caller. Any code but _QUEUE_FULL is final for this attempt. */
rd_kafka_resp_err_t kafka_producer_send(struct kafka_producer *p, struct delivery *d, rd_kafka_headers_t *headers,
                                        struct kafka_target target, instant_us now);

/* Within a report: the target's owner. */
void *kafka_producer_owner(const struct delivery *d);

/* Something has not been acked in time: sends nothing more, takes what is acked within a moment, gives up the rest as
 * timed out, and starts afresh. */
void kafka_producer_give_up(struct kafka_producer *p, instant_us now);

/* Reports what is known and moves the state on. */
void kafka_producer_serve(struct kafka_producer *p, instant_us now);

/* When serve() wants to be called without a wake-up; INSTANT_NEVER if not. */
instant_us kafka_producer_deadline(const struct kafka_producer *p);

/* As in sinks/sink.h. */
enum reach kafka_producer_probe(struct kafka_producer *p, const char *topic, instant_us now, struct error *err);

/* Gives everything that is left to report, as _PURGE_INFLIGHT, at the latest at `deadline`. */
void kafka_producer_close(struct kafka_producer *p, instant_us now, instant_us deadline);
