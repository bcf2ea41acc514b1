/* tests/unit/stage/claim_stage.h -- a claim on a scripted connection, with a strategy of one statement a step.
 *
 *   set_up -> claim_send_round... -> script_brings... -> progress -> ... -> tear_down */
#ifndef TESTS_UNIT_CLAIM_STAGE_H
#define TESTS_UNIT_CLAIM_STAGE_H

#include "relay/claim/claim.h"
#include "relay/claim/claim_connection.h"
#include "relay/claim/claim_send.h"
#include "relay/settle/round.h"
#include "relay/settle/settle.h"
#include "tests/unit/stage/hand_made.h"
#include "tests/unit/stage/scripted_db.h"

#define NOW (10 * SECOND_US)
#define KEYS 4 /* a claim */

static struct stage stage;
static struct claim *claim;
static struct table table;
static const struct config process = {.statement_timeout_us = 30 * SECOND_US};
static struct sink sink;
static struct sink_config sink_config;
static struct outlet outlet = {.sink = &sink, .config = &sink_config}; /* takes everything */
static const struct event *returned; /* what the claim's statement returns, in this order */
static size_t returned_count, failed_claims;
static int64_t rows_limit;
static int64_t returned_waited; /* the event of them that had waited; 0: none */

/* ---- a strategy of one statement a claim and one a settlement ---- */

static size_t one_claim(struct ordering *o, const struct claim_request *request, instant_us now, struct arena *arena,
                        struct statement *ret, struct claim_plan *ret_plan)
{
    (void)o;
    (void)request;
    (void)now;
    (void)arena;
    ret[0] = statement_of("claim");
    *ret_plan = (struct claim_plan){.rows_limit = rows_limit, .key_limit = 100};
    return 1;
}

static bool one_claimed(struct ordering *o, struct claim_plan *plan, size_t index, const PGresult *res,
                        const struct claim_intake *intake, struct error *err)
{
    (void)o;
    (void)res;
    ck_assert_uint_eq(index, 0);
    for (size_t i = 0; i < returned_count; i++, plan->rows++)
        if (!intake->event(intake->to, &returned[i], returned[i].id == returned_waited, err))
            return false;
    return true;
}

static void one_claim_done(struct ordering *o, struct claim_plan *plan, int64_t took_us, instant_us now)
{
    (void)o;
    (void)plan;
    (void)took_us;
    (void)now;
}

static void one_claim_failed(struct ordering *o, const struct claim_plan *plan)
{
    (void)o;
    (void)plan;
    failed_claims++;
}

static struct key_list kept, let_go; /* what the last statement about locks of the session named */

static struct statement one_hold(struct ordering *o, const struct key_list *list, bool keep, struct arena *arena)
{
    (void)o;
    (void)arena;
    *(keep ? &kept : &let_go) = *list;
    return statement_of(keep ? "keep" : "let go");
}

static size_t one_settle(struct ordering *o, const struct settlement *s, struct arena *arena, struct statement *ret)
{
    (void)o;
    (void)s;
    (void)arena;
    ret[0] = statement_of("settle");
    return 1;
}

static void one_settled(struct ordering *o, const struct settlement *s, size_t index, const PGresult *res,
                        size_t *ret_missing)
{
    (void)o;
    (void)s;
    (void)index;
    (void)res;
    (void)ret_missing;
}

static bool never(const struct ordering *o, instant_us now)
{
    (void)o;
    (void)now;
    return false;
}

static instant_us pending_at; /* until then nothing is known to be left */

static instant_us when_pending(const struct ordering *o)
{
    (void)o;
    return pending_at;
}

static const struct ordering_type one = {.claim = one_claim,
                                         .claimed = one_claimed,
                                         .claim_done = one_claim_done,
                                         .claim_failed = one_claim_failed,
                                         .hold = one_hold,
                                         .settle = one_settle,
                                         .settled = one_settled,
                                         .pending = never,
                                         .pending_at = when_pending,
                                         .sweep_due = never,
                                         .released = note_released};

static inline void set_up(void)
{
    pending_at = INSTANT_NEVER;
    stage_init(&stage, "there");
    claim = &stage.claim;
    stage.noting.ordering.type = &one;
    stage.queue.table = &table;
    stage.queue.process = &process;
    stage.config.max_batch_bytes = 1 << 20;
    stage.config.latency_us = MS_US;
    stage.config.keys_per_claim = KEYS;
    stage.queue.claiming.key_limit = KEYS;
    stage.queue.outlet = &outlet;
    stage.queue.side_requests.probe_answered = true;
    stage.queue.pace.idle_us = MS_US;
    keyset_init(&claim->held, KEYS * (size_t)CLAIM_LOCKS_FACTOR);
    claim->state = CLAIM_IDLE;
    kept = let_go = (struct key_list){0};
    sink_config.max_in_flight = 100;
    sink.in_flight = 0;
    returned_count = failed_claims = 0;
    returned_waited = 0;
    rows_limit = 100;
    script_reset();
}

static inline void tear_down(void)
{
    if (claim->round.job)
        settle_abort(claim->round.job);
    if (claim->round.arena)
        round_done(&claim->round);
    batch_free(claim->arriving);
    keyset_done(&claim->held);
    stage_done(&stage);
}

static inline void progress(void)
{
    claim_connection_progress(claim, NULL, NOW);
}

#endif
