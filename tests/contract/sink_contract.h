/* tests/contract/sink_contract.h -- what every sink must do, and a driver that calls it as the engine does.
 *
 * A sink's test describes itself once and gets the whole suite:
 *
 *   static struct contract_setup setup = {.name = "file", .type = &sink_file, .destination = "orders", .start = ...};
 *   suite_add_tcase(suite, contract_tcase(&setup));
 *
 * and uses the same driver for what only it can promise:
 *
 *   struct contract *c = contract_open(&setup);
 *   struct delivery *d = contract_add(c, "order-7", span_of("{}"));
 *   ck_assert(contract_run(c, 5000));
 *   ck_assert_int_eq(d->verdict, VERDICT_ACKED);
 *   contract_end(c);
 *
 * Everything here fails the running test through Check when the contract is broken. */
#ifndef TESTS_CONTRACT_SINK_CONTRACT_H
#define TESTS_CONTRACT_SINK_CONTRACT_H

#include "sinks/sink.h"

#include <check.h>

struct contract_setup {
    const char *name; /* of the test case */
    const struct sink_type *type;
    const void *settings;    /* what the sink is opened with */
    const char *destination; /* one that takes everything */

    /* Optional. */
    const char *deaf_destination; /* takes the bytes and never answers, so that close() has something to give up */
    void (*start)(struct contract_setup *setup); /* before each test: start the server, fill in the fields above */
    void (*stop)(struct contract_setup *setup);  /* after each test */

    int many; /* events of the test that sends more than fit; 0: 3000 */

    /* For SINK_KEEPS_KEY_ORDER: a payload that the destination refuses, so that the ones behind it must fail. */
    const char *poison;
};

/* The common suite for one setup. At most 16 setups a program. */
TCase *contract_tcase(struct contract_setup *setup);

struct contract {
    struct sink *sink; /* NULL after contract_close() */
    const struct contract_setup *setup;
    struct pollset *ps;
    struct arena *arena;
    struct delivery **ds; /* in the order of contract_add() */
    size_t count, capacity;
    size_t turns;           /* of the poll loop so far */
    struct error unreached; /* what contract_probe() was told with REACH_NO */
};

/* Opens the sink; start() has been called by the caller or by contract_tcase(). */
struct contract *contract_open(const struct contract_setup *setup);

/* A delivery of one more event: ids count from 1; `key` NULL = no key. Nothing is submitted yet, so a test may still
 * change the result. The event may be changed through contract_event(). */
struct delivery *contract_add(struct contract *c, const char *key, struct span payload);
struct event *contract_event(struct delivery *d);

/* A run of `length` events (SINK_TAKES_RUNS). The key must have no other event before it that is not acked. */
void contract_add_run(struct contract *c, const char *key, int length);

/* Plays the engine: submits in id order, one of a key at a time unless the sink keeps the order of keys or takes runs,
 * never one whose predecessor failed, and drives the loop until all that were submitted have their verdict. False after
 * the time.
 */
bool contract_run(struct contract *c, int64_t timeout_ms);

/* The pieces of it. Submit offers everything that may go now and returns how many were taken. Turn waits at most
 * `wait_ms` in poll(2). */
size_t contract_submit(struct contract *c);
void contract_turn(struct contract *c, int64_t wait_ms);
bool contract_drain(struct contract *c, int64_t timeout_ms); /* turns until nothing is in flight */

/* Probes until the sink has found out. REACH_PENDING after the time. */
enum reach contract_probe(struct contract *c, const char *destination, int64_t timeout_ms);

size_t contract_verdicts(const struct contract *c, enum verdict verdict); /* how many deliveries have it */

/* Closes the sink and checks that each delivery has a verdict. Returns how long it took. */
int64_t contract_close_us(struct contract *c);

void contract_end(struct contract *c); /* closes if need be, frees */

#endif
