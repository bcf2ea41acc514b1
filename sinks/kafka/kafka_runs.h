/* sinks/kafka/kafka_runs.h -- many events of one key in flight to Kafka, in order whatever fails.
 *
 *   kafka_runs_init -> (kafka_runs_add* -> kafka_runs_prepare -> poll(2) -> kafka_runs_progress)* -> kafka_runs_close
 *
 * DESIGN. Kafka takes a batch of records as a whole or refuses it as a whole. Two batches are another matter: when the
 * first is refused and the second is on its way already, only a broker that remembers this producer's sequence numbers
 * refuses that one, too, and a broker need not remember any (the first batch to a partition, one after a leader lost
 * its log, a broker that is not Apache's). So here a partition has one batch in flight, and the events of a key that
 * are in flight together are in that batch.
 *
 * librdkafka makes batches of what it finds when one of its threads comes by. It is kept from looking too early by
 * pausing the partition: its *gate* is closed, all that fits into one batch is handed over, the gate is opened, and
 * nothing more is handed over until the whole batch is reported. librdkafka's retries send the same batch again. Events
 * that do not fit wait here for the next batch, and fail if those of their run before them do.
 *
 * A message must not time out in librdkafka, where those that were handed over some microseconds later would stay: it
 * has no timeout there. When a partition has not answered in time, the whole producer is given up. */
#pragma once

#include "sinks/kafka/kafka_conf.h"
#include "sinks/kafka/kafka_producer.h"
#include "sinks/kafka/kafka_topics.h"

struct kafka_runs_settings {
    const rd_kafka_conf_t *conf; /* for KAFKA_RUNS; borrowed */
    int wake_fd;                 /* borrowed; an eventfd */
    int64_t down_after_us;
    int64_t timeout_us; /* how long a batch may be without its ack */

    /* Called within progress() and close(), with `context`. `refused`: librdkafka did not take it. `reported`: what
     * became of a batch; `behind` is true when the event of its key just before it was in the same batch. */
    void (*refused)(void *context, struct delivery *d, rd_kafka_resp_err_t code);
    void (*reported)(void *context, struct delivery *d, rd_kafka_resp_err_t code, rd_kafka_msg_status_t status,
                     bool behind);
    void *context;
};

struct kafka_runs {
    struct kafka_runs_settings settings;
    struct kafka_producer producer;
    bool open, useless; /* useless: there is no such producer to be had */
    kafka_partitioner *partitioner;
    size_t batch_bytes, batch_events;

    struct kafka_topics topics;
    struct kafka_partition *busy;   /* that have events waiting or in a batch, or a gate that moves */
    struct kafka_background *gates; /* moving those that are CLOSING or OPENING */
    bool urgent;                    /* progress() has something to do */
    instant_us now;                 /* of the call in progress, for reports */
    instant_us check_at;
};

/* `runs` is zeroed. */
void kafka_runs_init(struct kafka_runs *runs, const struct kafka_runs_settings *settings);

/* False when there are no runs for the time being: events of one key then go one at a time. */
bool kafka_runs_possible(const struct kafka_runs *runs);

/* Takes the `n` events of a run, whose topic's name is checked; or none of them, and false, when it is not possible to
 * that topic now. */
bool kafka_runs_add(struct kafka_runs *runs, struct delivery *const ds[], size_t n, instant_us now);

void kafka_runs_prepare(const struct kafka_runs *runs, struct pollset *ps);
void kafka_runs_progress(struct kafka_runs *runs, instant_us now);

/* Everything gets its verdict. */
void kafka_runs_close(struct kafka_runs *runs, instant_us now, instant_us deadline);
