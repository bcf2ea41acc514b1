/* tests/unit/stage/lease_stage.h -- a claim of a queue with leases, on the scripted connection of claim_stage.h.
 *
 *   set_up_leases -> leased_lane, or brought -> stage_event... -> lease -> ... -> tear_down_leases
 *
 * The program is linked with --wrap for db_backend_pid, too. */
#ifndef TESTS_UNIT_LEASE_STAGE_H
#define TESTS_UNIT_LEASE_STAGE_H

#include "relay/claim/claim.h"
#include "relay/hold/lease.h"
#include "tests/unit/stage/claim_stage.h"

#define TERM_US (9 * SECOND_US)

static struct ordering_type leasing;
static struct lease_list granted;
static int granted_pid;
static size_t renewed_count;
static struct queue *queue;

int __wrap_db_backend_pid(const struct db *db);

int __wrap_db_backend_pid(const struct db *db)
{
    (void)db;
    return 4711;
}

static inline struct statement one_grant(struct ordering *o, const struct lease_list *list, int backend_pid,
                                         struct arena *arena)
{
    (void)o;
    (void)arena;
    granted = *list;
    granted_pid = backend_pid;
    return statement_of("grant");
}

static inline struct statement one_renew(struct ordering *o, const struct span *tokens, size_t count, int backend_pid,
                                         struct arena *arena)
{
    (void)o;
    (void)tokens;
    (void)arena;
    granted_pid = backend_pid;
    renewed_count = count;
    return statement_of("renew");
}

static inline void set_up_leases(void)
{
    set_up();
    leasing = one;
    leasing.grant = one_grant;
    leasing.renew = one_renew;
    stage.noting.ordering.type = &leasing;
    queue = &stage.queue;
    queue->leases.used = true;
    queue->pace.poll_at = INSTANT_NEVER;
    stage.config.lease_us = TERM_US;
    stage.config.lease_owner = LEASE_BACKEND;
}

static inline void tear_down_leases(void)
{
    stage_free_batches(&queue->holds.leased);
    tear_down();
}

/* As a claim has just brought it. */
static inline struct batch *brought(void)
{
    struct batch *batch = stage_batch(&stage);
    queue->arrived = NULL;
    claim->in_transaction = true;
    return batch;
}

static inline void lease(int64_t count)
{
    claim->sent_at = NOW;
    claim_settle_resolved(queue, NOW);
    script_brings_count(0, count);
    script_brings_result(1, PGRES_COMMAND_OK);
    script_brings(DB_ROUND_END);
    progress();
}

static inline struct lane *leased_lane(void)
{
    struct lane *lane = stage_lane_of_three(brought(), 1, "a");
    lease(1);
    ck_assert_ptr_eq(queue->holds.leased, lane->batch);
    queue->arrived = NULL;
    return lane;
}

#endif
