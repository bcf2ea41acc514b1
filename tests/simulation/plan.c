#include "tests/simulation/plan.h"

#include "relay/postgres/db.h"
#include "tests/simulation/sink.h"

#include <inttypes.h>
#include <stdio.h>

static int64_t draw(struct rng *rng, int64_t low, int64_t high)
{
    return low + (int64_t)(rng_next(rng) % (uint64_t)(high - low + 1));
}

static bool chance(struct rng *rng, unsigned of_thousand)
{
    return rng_next(rng) % 1000 < of_thousand;
}

/* In `share` of a thousand runs from 1 to `max`, else none. */
static unsigned rate(struct rng *rng, unsigned share, unsigned max)
{
    return chance(rng, share) ? (unsigned)draw(rng, 1, max) : 0;
}

static void make_config(struct plan *plan, struct rng *rng)
{
    static char sink_name[] = "sink", queue_name[] = "orders", ordering[] = "per_key", one_place[] = "there",
                by_key[] = "to-{key}", database[] = "", place[] = "simulation";
    plan->sink = (struct sink_config){.name = sink_name,
                                      .type = plan->probes ? &sim_sink_probing : &sim_sink,
                                      .max_in_flight = chance(rng, 500) ? draw(rng, 1, 8) : 64,
                                      .place = place};
    static const int64_t shares[] = {50, 50, 20, 0, 100, 90};
    plan->queue = (struct queue_config){
        .name = queue_name,
        .ordering = ordering,
        .sink = sink_name,
        .destination = chance(rng, 300) ? by_key : one_place,
        .after = chance(rng, 200) ? AFTER_ARCHIVE : AFTER_DELETE,
        .retry_base_us = draw(rng, 5, 200) * MS_US,
        .retry_max_us = draw(rng, 200, 1000) * MS_US,
        .retry_attempts = draw(rng, 1, 4),
        .on_exhausted = chance(rng, 300) ? ON_EXHAUSTED_PARK : ON_EXHAUSTED_DEAD_LETTER,
        .connections = draw(rng, 1, 2),
        .keys_per_claim = chance(rng, 600) ? draw(rng, 1, 4) : 16,
        .max_events_per_key = chance(rng, 600) ? draw(rng, 1, 3) : 16,
        .max_batch_bytes = chance(rng, 200) ? 1500 : 1 << 20,
        .max_event_bytes = plan->large ? 1000 : 0,
        .latency_us = draw(rng, 1, 20) * MS_US,
        .poll_max_us = draw(rng, 50, 400) * MS_US,
        .oldest_share = shares[draw(rng, 0, 5)],
        .place = place,
    };
    /* Events that can never be delivered would keep their keys closed for ever. */
    if (plan->large || (plan->keyless && plan->queue.destination == by_key))
        plan->queue.on_exhausted = ON_EXHAUSTED_DEAD_LETTER;
    (void)chance(rng, 200); /* so that a seed is drawn as before there were less settings */
    plan->config = (struct config){.database = database,
                                   .prepared = PREPARED_AUTO,
                                   .shutdown_timeout_us = 8 * SECOND_US,
                                   .statement_timeout_us = 5 * SECOND_US,
                                   .sinks = &plan->sink,
                                   .sink_count = 1,
                                   .queues = &plan->queue,
                                   .queue_count = 1};
}

/* Mostly a few kinds of fault at a time: when everything fails at once, each hides the others. */
static void make_faults(struct plan *plan, struct rng *rng)
{
    unsigned heat = chance(rng, 300) ? 5 : 2;
    plan->rates = (struct plan_rates){
        .sql_error = rate(rng, 200 * heat / 2, 60),
        .backend_killed = rate(rng, 250 * heat / 2, 30),
        .connection_cut = rate(rng, 250 * heat / 2, 30),
        .connect_fails = rate(rng, 100 * heat / 2, 500),
        .statement_slow = rate(rng, 150 * heat / 2, 100),
        .refused = rate(rng, 200 * heat / 2, 300),
        .rejected = rate(rng, 150 * heat / 2, 150),
        .unknown = rate(rng, 200 * heat / 2, 200),
        .late = rate(rng, 200 * heat / 2, 300),
        .overloaded = rate(rng, 100 * heat / 2, 300),
        .unreachable = rate(rng, 100 * heat / 2, 300),
        .no_route = rate(rng, 100 * heat / 2, 300),
        .full = rate(rng, 150 * heat / 2, 500),
    };
    plan->counts = (struct plan_counts){
        .kills = rate(rng, 250 * heat / 2, 2),
        .freezes = rate(rng, 200 * heat / 2, 3),
        .stops = rate(rng, 150 * heat / 2, 2),
        .restarts = rate(rng, 100 * heat / 2, 1),
        .outages = rate(rng, 200 * heat / 2, 2),
        .put_backs = rate(rng, 400 * heat / 2, 3),
    };
    plan->poison = rate(rng, 200 * heat / 2, 200);
    plan->stuck = rate(rng, 150 * heat / 2, 300);
    plan->stays = rate(rng, 100 * heat / 2, 300);
    plan->counts.pauses = rate(rng, 200 * heat / 2, 3);
    plan->places = chance(rng, 700);
    plan->moves = rate(rng, 200 * heat / 2, 100);
}

/* The others have to get past it, so it must not take all the room that there is. */
static void make_slow_key(struct plan *plan)
{
    plan->slow_key = 0;
    plan->lock_names = 0;
    plan->sink.max_in_flight = 64;
    if (plan->queue.keys_per_claim == 1)
        plan->queue.keys_per_claim = 2;
    if (plan->delayed > 0)
        plan->queue.keys_per_claim =
            16; /* waits that are over get a quarter, of which it takes one as long as it lasts */
    if (plan->unordered)
        plan->keeps_order = false; /* all of its events would wait behind the first one, each in a place of its own */
    plan->queue.connections = 2;   /* one claim alone, when it is full, does not look for more of the keys it holds */
}

/* What `ordering:` says of the other kinds. Numbers of their own: a seed of `per_key` is drawn as if there were none.
 */
static void make_ordering(struct plan *plan, uint64_t seed)
{
    static char unordered[] = "unordered", lease[] = "lease";
    struct rng rng = {seed ^ UINT64_C(0x6f72646572696e67)};
    int64_t kind = draw(&rng, 0, 999);
    plan->unordered = kind < 250;
    plan->leases = kind >= 250 && kind < 500;
    if (plan->leases) {
        plan->queue.ordering = lease;
        plan->queue.lease_us = draw(&rng, 150, chance(&rng, 500) ? 500 : 2000) * MS_US;
        plan->queue.lease_owner = chance(&rng, 500) ? LEASE_BACKEND : LEASE_NAME;
        plan->calls_back = chance(&rng, 500);
    }
    if (!plan->unordered)
        return;
    plan->queue.ordering = unordered;
    plan->lock_rows = chance(&rng, 500);
    plan->priority = chance(&rng, 600);
    plan->queue.locks = plan->lock_rows ? LOCKS_ROWS : LOCKS_ADVISORY;
    if (chance(&rng, 500))
        plan->queue.oldest_share = 10;
}

static void make_delays(struct plan *plan, uint64_t seed)
{
    static char column[] = "not_before";
    struct rng rng = {seed ^ UINT64_C(0x6e6f745f62656672)};
    if (!chance(&rng, 200))
        return;
    plan->passes = chance(&rng, 500);
    plan->holds = !plan->passes;
    plan->delayed = (unsigned)draw(&rng, 50, 500);
    plan->queue.columns.not_before = column;
    plan->queue.delayed = plan->passes ? DELAYED_PASS : DELAYED_HOLD;
}

/* Long enough to fall asleep, and to be woken, a few times. */
static void make_rests(struct plan *plan, uint64_t seed)
{
    struct rng rng = {seed ^ UINT64_C(0x72657374)};
    plan->rests = !plan->until_empty && chance(&rng, 200);
    if (!plan->rests)
        return;
    plan->produce_until += draw(&rng, 0, 4000) * MS_US;
    plan->calm_at = plan->produce_until + draw(&rng, 0, 3000) * MS_US;
    if (chance(&rng, 800))
        plan->pooled = false;
    plan->counts.terminations = plan->faultless ? 0 : rate(&rng, 300, 4);
}

void plan_make(struct plan *plan, struct rng *rng, uint64_t seed)
{
    *plan = (struct plan){
        .relays = (int)draw(rng, 1, 3),
        .keys = (int)draw(rng, 1, 6),
        .events = (int)draw(rng, 3, 30),
        .take_turns = !chance(rng, 100),
        .keeps_order = chance(rng, 300),
        .takes_runs = chance(rng, 400),
        .probes = chance(rng, 500),
        .pooled = chance(rng, 300),
        .sequence = !chance(rng, 150),
        .lock_names = chance(rng, 150) ? 2 : 0,
        .id_step_max = chance(rng, 200) ? 200000 : 2,
        .keyless = rate(rng, 300, 300),
        .large = rate(rng, 100, 200),
        .aborts = rate(rng, 500, 300),
        .long_txn = rate(rng, 400, 300),
        .backlog = chance(rng, 300),
        .until_empty = chance(rng, 100),
        .faultless = chance(rng, 200),
        .slow_key = -1,
    };
    make_config(plan, rng);
    make_ordering(plan, seed);
    make_delays(plan, seed);
    plan->produce_until = PLAN_START + draw(rng, 20, 800) * MS_US;
    plan->calm_at = plan->produce_until + draw(rng, 0, 1000) * MS_US;
    if (!plan->faultless)
        make_faults(plan, rng);
    make_rests(plan, seed);
    if (!plan->faultless)
        return;
    if (plan->keys > 1 && chance(rng, 400))
        make_slow_key(plan);
}

void plan_print(const struct plan *plan)
{
    const struct queue_config *q = &plan->queue;
    const struct plan_rates *r = &plan->rates;
    const struct plan_counts *c = &plan->counts;
    printf("relays=%d connections=%" PRId64 " keys=%d events=%d keys_per_claim=%" PRId64 " max_events_per_key=%" PRId64
           " max_batch_bytes=%" PRId64 " oldest_share=%" PRId64 " max_in_flight=%" PRId64 " attempts=%" PRId64
           " on_exhausted=%s destination=%s rests=%d\n",
           plan->relays, q->connections, plan->keys, plan->events, q->keys_per_claim, q->max_events_per_key,
           q->max_batch_bytes, q->oldest_share, plan->sink.max_in_flight, q->retry_attempts,
           q->on_exhausted == ON_EXHAUSTED_PARK ? "park" : "dead_letter", q->destination, plan->rests);
    printf("delayed=%s ordering=%s lease=%d ms by %s calls_back=%d locks=%s priority=%d turns=%d keeps_order=%d "
           "takes_runs=%d probes=%d "
           "pooled=%d sequence=%d "
           "lock_names=%d id_step_max=%" PRId64 " backlog=%d until_empty=%d faultless=%d slow_key=%d calm_at=%d ms\n",
           plan->holds    ? "hold"
           : plan->passes ? "pass"
                          : "no",
           q->ordering, (int)(q->lease_us / MS_US), q->lease_owner == LEASE_BACKEND ? "backend" : "name",
           plan->calls_back, plan->lock_rows ? "rows" : "advisory", plan->priority, plan->take_turns, plan->keeps_order,
           plan->takes_runs, plan->probes, plan->pooled, plan->sequence, plan->lock_names, plan->id_step_max,
           plan->backlog, plan->until_empty, plan->faultless, plan->slow_key,
           (int)((plan->calm_at - PLAN_START) / MS_US));
    printf(
        "of 1000: keyless=%u large=%u poison=%u stuck=%u stays=%u places=%d moves=%u aborts=%u long_txn=%u "
        "sql_error=%u backend_killed=%u "
        "connection_cut=%u connect_fails=%u statement_slow=%u refused=%u rejected=%u unknown=%u late=%u overloaded=%u "
        "unreachable=%u no_route=%u full=%u; kills=%u freezes=%u stops=%u restarts=%u outages=%u put_backs=%u "
        "pauses=%u terminations=%u\n",
        plan->keyless, plan->large, plan->poison, plan->stuck, plan->stays, plan->places, plan->moves, plan->aborts,
        plan->long_txn, r->sql_error, r->backend_killed, r->connection_cut, r->connect_fails, r->statement_slow,
        r->refused, r->rejected, r->unknown, r->late, r->overloaded, r->unreachable, r->no_route, r->full, c->kills,
        c->freezes, c->stops, c->restarts, c->outages, c->put_backs, c->pauses, c->terminations);
}
