/* relay/relay.h -- the running relay: one thread, one poll loop.
 *
 *   relay_open -> relay_run ... -> relay_close
 *   or with a clock of one's own, as in a simulation:
 *   relay_open -> (relay_prepare -> wait -> relay_turn until relay_has_ended) ... -> relay_close */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/log.h"
#include "relay/base/pollset.h"
#include "relay/config/config.h"

struct queue;
struct relay;

struct relay_options {
    const struct config *config; /* borrowed until relay_close() */
    const struct log *log;       /* borrowed */
    int signal_fd;               /* a signalfd(2) with SIGTERM, SIGINT, SIGHUP; or -1 */
    bool until_empty;            /* end when nothing is left to deliver */
    int64_t idle_max_us;         /* end after so long without anything to do; 0: never */
    bool notes_queues;           /* its queues are real ones, whose names SQL is to know */
    uint64_t seed;
};

enum relay_end {
    RELAY_DRAINED, /* everything in flight was settled */
    RELAY_CUT,     /* stopped before that: a second signal, or shutdown_timeout */
    RELAY_RELOAD   /* SIGHUP; call relay_run() again to go on with the same configuration */
};

/* Opens the sinks, connects to the database and checks every queue's table; findings are logged, and one that would
 * break a guarantee fails (ERROR_CONFIG). Blocking. NULL and *err on failure. */
struct relay *relay_open(const struct relay_options *options, struct error *err) MUST_CHECK;

enum relay_end relay_run(struct relay *relay);

/* The loop of relay_run() in pieces. What to wait for, owned by the relay and valid until the next call; one turn after
 * the wait; and whether that was the last, with what relay_run() would return. */
struct pollset *relay_prepare(struct relay *relay, instant_us now);
void relay_turn(struct relay *relay, instant_us now);
bool relay_has_ended(struct relay *relay, instant_us now, enum relay_end *ret);

/* As if a signal had asked to stop; for a configuration that is being replaced. Returns like relay_run(). */
enum relay_end relay_drain(struct relay *relay);

/* Queue `index` of the configuration at work, for who wants to know what it has done; valid until relay_close(). */
const struct queue *relay_queue(const struct relay *relay, size_t index);

/* A signal has asked to stop, also while draining: the process is to end. */
bool relay_was_signalled(const struct relay *relay);

/* SIGHUP has come and nothing has followed from it: while draining, say. */
bool relay_is_to_reload(const struct relay *relay);

/* As if SIGHUP had come: relay_run() returns RELAY_RELOAD at once. */
void relay_reload(struct relay *relay);

/* SIGHUP with a configuration that stays: files are opened again. */
void relay_reopen_sinks(struct relay *relay);

void relay_close(struct relay *relay); /* NULL is a no-op */
