/* relay/deliver/outlet.h -- a sink with what waits for it and whether it can be reached, and how
 * much it could take.
 *
 *   outlet_open -> (outlet_prepare -> poll(2) -> deliver_ready, see relay/deliver/deliver.h)* -> outlet_close
 */
#pragma once

#include "relay/base/clock.h"
#include "relay/base/error.h"
#include "relay/base/log.h"
#include "relay/config/config.h"
#include "relay/deliver/circuit.h"
#include "relay/deliver/route_circuit.h"
#include "relay/queue/keyset.h"
#include "sinks/sink.h"

struct lane;
struct pollset;

/* A sink and the lanes that wait for it. */
struct outlet {
    struct sink *sink;
    const struct sink_config *config;
    struct lane *ready, *ready_end; /* see ready.h */
    size_t ready_count, lanes_in_flight;
    bool stopping;                /* no lane goes on to its next event */
    struct circuit circuit;       /* of the whole sink */
    struct route_circuits routes; /* troubled destinations only */
    instant_us last_ack_at;
    instant_us taken_sent_at; /* when the newest event that was acked had been submitted */
    struct keyset suspects;   /* events in flight when a connection broke; `at` is when */
    const struct log *log;
    struct rng rng;
};

struct outlet *outlet_open(const struct sink_config *config, const struct log *log, uint64_t seed,
                           struct error *err) MUST_CHECK;
void outlet_close(struct outlet *outlet); /* every lane must be finished or lost */
void outlet_prepare(struct outlet *outlet, struct pollset *ps, instant_us now);

/* How many lanes it may have at once, where they are not to wait for others to end. */
size_t outlet_places(const struct outlet *outlet);

/* Its sink could take more than there is for it. */
bool outlet_has_room(const struct outlet *outlet);

/* How many events its sink has in flight at most, as things are. */
int64_t outlet_most_in_flight(const struct outlet *outlet);

/* How many events it could take beyond those that wait for it, were there so many places. */
int64_t outlet_room(const struct outlet *outlet, int64_t places);

/* How many keys a claim may take for this outlet now: 0 = none, 1 = for a trial, or any number. */
int64_t outlet_keys_wanted(struct outlet *outlet, struct span destination, instant_us now);

/* When outlet_keys_wanted() may change by itself. */
instant_us outlet_wake_at(const struct outlet *outlet);
