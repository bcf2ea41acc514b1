#include "tests/simulation/producer.h"

#include "tests/simulation/judge.h"
#include "tests/simulation/server.h"
#include "tests/simulation/world.h"

#define PRODUCERS 3
#define TXN_EVENTS_MAX 4
#define SILENCE_US SECOND_US /* after which a relay is about to rest */

struct producer {
    instant_us next_at;
    int txn; /* TXN_NONE: between two */
    int left;
    struct row *rows[TXN_EVENTS_MAX];
    int row_count;
    bool notifies; /* a relay rested when it wrote */
};

static struct {
    struct producer all[PRODUCERS];
    instant_us silent_until; /* all of them */
    int events_left;
} producers;

void producers_clear(void)
{
    producers.events_left = sim.plan.events;
    producers.silent_until = 0;
    for (int i = 0; i < PRODUCERS; i++)
        producers.all[i] = (struct producer){.next_at = PLAN_START + sim_draw(0, 20 * MS_US), .txn = TXN_NONE};
}

bool producers_are_done(void)
{
    for (int i = 0; i < PRODUCERS; i++)
        if (producers.all[i].txn != TXN_NONE)
            return false;
    return producers.events_left <= 0;
}

static struct producer *next_producer(void)
{
    struct producer *next = &producers.all[0];
    for (int i = 1; i < PRODUCERS; i++)
        if (producers.all[i].next_at < next->next_at)
            next = &producers.all[i];
    return next;
}

instant_us producers_next(void)
{
    return next_producer()->next_at;
}

/* Somebody else is in the middle of this key: with turns, we have to wait. */
static bool is_taken(const struct producer *me, int key)
{
    for (int i = 0; sim.plan.take_turns && i < PRODUCERS; i++) {
        const struct producer *other = &producers.all[i];
        for (int n = 0; other != me && other->txn != TXN_NONE && n < other->row_count; n++)
            if (other->rows[n]->sent == key)
                return true;
    }
    return false;
}

static int64_t draw_id(void)
{
    int64_t step = sim_chance(100) ? sim_draw(1, sim.plan.id_step_max) : 1;
    return sim.store.drawn += step;
}

static void insert(struct producer *producer)
{
    int key = sim_chance(sim.plan.keyless) ? KEY_NONE_SIM : (int)sim_draw(0, sim.plan.keys - 1);
    if (key != KEY_NONE_SIM && is_taken(producer, key))
        return;
    sim.store.txns[producer->txn].draws = true;
    struct row *row = store_add_row(&sim.store, draw_id(), key, producer->txn);
    row->bytes = sim_chance(sim.plan.large) ? 1500 : (int)sim_draw(1, 400);
    row->whim = sim_chance(sim.plan.stuck)   ? WHIM_REFUSES
                : sim_chance(sim.plan.stays) ? WHIM_STAYS
                : sim_chance(sim.plan.moves) ? WHIM_MOVES
                                             : WHIM_NONE;
    if (sim.plan.unordered)
        row->key = KEY_NONE_SIM;
    if (sim.plan.priority && !sim_chance(200))
        row->priority = sim_draw(-3, 3);
    if (sim.plan.delayed > 0 && sim_chance(sim.plan.delayed))
        row->due_at = sim.now + sim_draw(1, sim_chance(200) ? 3000 : 500) * MS_US;
    producer->rows[producer->row_count++] = row;
    producer->notifies = producer->notifies || server_somebody_rests();
    producers.events_left--;
}

static int64_t pause_us(void)
{
    if (sim_chance(sim.plan.long_txn))
        return sim_draw(10, 400) * MS_US;
    return sim_draw(50, 2 * MS_US);
}

static void begin(struct producer *producer)
{
    if (producers.events_left <= 0) {
        producer->next_at = INSTANT_NEVER;
        return;
    }
    if (sim.now < producers.silent_until) {
        producer->next_at = producers.silent_until + sim_draw(0, 10 * MS_US);
        return;
    }
    producer->txn = store_begin(&sim.store);
    producer->left = (int)sim_draw(1, 3);
    producer->row_count = 0;
    producer->next_at = sim.now + sim_draw(0, 300);
}

static void end(struct producer *producer, bool commit)
{
    if (commit)
        store_commit(&sim.store, producer->txn);
    else
        store_abort(&sim.store, producer->txn);
    for (int i = 0; commit && i < producer->row_count; i++)
        judge_committed(producer->rows[i]);
    producer->txn = TXN_NONE;
    if (commit && producer->notifies)
        server_notify(false);
    producer->notifies = false;
    if (sim.plan.rests && sim.now < sim.plan.produce_until && sim_chance(300))
        producers.silent_until = sim.now + SILENCE_US + sim_draw(0, sim_chance(500) ? 60 : 1500) * MS_US;
    int64_t window = sim.plan.produce_until - PLAN_START;
    producer->next_at = sim.now + sim_draw(0, window * PRODUCERS * 3 / (sim.plan.events + 1));
}

void producers_abort(void)
{
    for (int i = 0; i < PRODUCERS; i++)
        if (producers.all[i].txn != TXN_NONE)
            end(&producers.all[i], false);
}

void producers_step(void)
{
    struct producer *producer = next_producer();
    if (producer->txn == TXN_NONE) {
        begin(producer);
        return;
    }
    if (producer->left-- > 0) {
        insert(producer);
        producer->next_at = sim.now + pause_us();
        return;
    }
    end(producer, !sim_chance(sim.plan.aborts));
}
