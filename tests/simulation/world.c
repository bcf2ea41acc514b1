#include "tests/simulation/world.h"

#include "tests/simulation/faults.h"
#include "tests/simulation/judge.h"
#include "tests/simulation/producer.h"
#include "tests/simulation/result.h"
#include "tests/simulation/server.h"
#include "tests/simulation/sink.h"
#include "tests/simulation/start.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define DRAIN_MAX_US (20 * SECOND_US) /* from the last fault to an empty table, at most */
#define STOP_MAX_US (12 * SECOND_US)
#define TURNS_MAX 40000

struct world sim;

void sim_trace(const char *format, ...)
{
    printf("%10.3f ", (double)(sim.now - PLAN_START) / (double)MS_US);
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

/* ---- processes ---- */

static void process_start(int index)
{
    struct process *process = &sim.processes[index];
    struct error err;
    struct relay_options options = {.config = &sim.plan.config,
                                    .log = &sim.log,
                                    .signal_fd = START_SIGNAL_FD,
                                    .until_empty = sim.plan.until_empty,
                                    .seed = rng_next(&sim.rng)};
    process->relay = relay_open(&options, &err);
    if (!process->relay)
        judge_violation("start", NULL, "relay %d does not start: %s", index, err.text);
    process->signals = 0;
    process->stop_signals = 0;
    process->life++;
}

static void process_end(int index, int64_t away_us)
{
    struct process *process = &sim.processes[index];
    relay_close(process->relay);
    process->relay = NULL;
    process->wake_at = sim.now + away_us;
    process->busy_until = 0;
    judge_process_gone(index);
}

void process_kill(int process)
{
    TRACE("relay %d is killed", process);
    sim.current = process;
    sim.totals.faults++;
    if (sim.processes[process].relay)
        process_end(process, sim_draw(1, 300) * MS_US);
}

void process_stop(int process)
{
    TRACE("relay %d gets SIGTERM", process);
    if (!sim.processes[process].relay)
        return; /* a second signal, which means at once, is for the faults to send */
    sim.processes[process].signals++;
    sim.processes[process].stop_signals++;
    sim_wake(process, sim.now);
}

void process_freeze(int process, int64_t for_us)
{
    TRACE("relay %d is frozen for %d ms", process, (int)(for_us / MS_US));
    sim.processes[process].busy_until = sim.now + for_us;
}

static instant_us wakes_at(const struct process *process)
{
    return process->wake_at > process->busy_until ? process->wake_at : process->busy_until;
}

static void process_turn(int index)
{
    struct process *process = &sim.processes[index];
    enum relay_end end;
    process->wake_at = INSTANT_NEVER;
    sim.turns++;
    relay_turn(process->relay, sim.now);
    if (relay_has_ended(process->relay, sim.now, &end)) {
        TRACE("relay %d has ended %s", index, end == RELAY_DRAINED ? "drained" : "cut");
        if (sim.ending && process->stop_signals == 1 && end != RELAY_DRAINED)
            judge_violation("stop", NULL, "relay %d was stopped at a quiet time and had not finished", index);
        if (sim.plan.until_empty && process->stop_signals == 0)
            judge_empty(index);
        if (end == RELAY_DRAINED)
            judge_at_rest(index);
        process_end(index, sim.ending ? INSTANT_NEVER / 2 : sim_draw(1, 300) * MS_US);
        return;
    }
    instant_us deadline = pollset_next_deadline(relay_prepare(process->relay, sim.now));
    sim_wake(index, deadline);
    process->busy_until = sim.now + sim_draw(5, 60); /* a turn takes time */
}

static void process_step(int index)
{
    sim.current = index;
    if (!sim.processes[index].relay)
        process_start(index);
    if (!sim.failed)
        process_turn(index);
}

/* ---- the run ---- */

/* Lets whoever is next take one step. */
static void step(void)
{
    instant_us at = server_next();
    void (*act)(void) = server_step;
    const struct {
        instant_us at;
        void (*act)(void);
    } others[] = {{network_next(), network_step}, {producers_next(), producers_step}, {faults_next(), faults_step}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].at < at) {
            at = others[i].at;
            act = others[i].act;
        }
    int process = -1;
    for (int i = 0; i < sim.plan.relays; i++)
        if (wakes_at(&sim.processes[i]) < at) {
            at = wakes_at(&sim.processes[i]);
            process = i;
        }
    sim.now = at > sim.now ? at : sim.now;
    sim.current = process;
    sim.steps++;
    if (process >= 0)
        process_step(process);
    else
        act();
}

static void set_up(uint64_t seed, bool trace)
{
    sim.seed = seed;
    sim.rng.state = seed;
    sim.now = PLAN_START;
    sim.trace = trace;
    sim.failed = sim.ending = false;
    sim.paused_until = 0;
    sim.steps = sim.turns = 0;
    sim.arena = arena_new();
    sim.log = (struct log){.level = trace ? LOG_DEBUG : LOG_ERROR, .fd = trace ? STDOUT_FILENO : -1};
    plan_make(&sim.plan, &sim.rng, seed);
    store_clear(&sim.store);
    server_clear();
    network_clear();
    judge_clear();
    result_forget_unread();
    producers_clear();
    faults_clear();
    for (int i = 0; i < sim.plan.relays; i++)
        sim.processes[i] =
            (struct process){.wake_at = PLAN_START + sim_draw(0, 5 * MS_US) + (sim.plan.backlog ? 300 * MS_US : 0)};
}

static bool is_drained(void)
{
    return producers_are_done() && judge_is_drained();
}

static bool goes_on(instant_us until)
{
    if (sim.turns > TURNS_MAX)
        judge_violation("spin", NULL, "the relays took %" PRIu64 " turns in %d ms", sim.turns,
                        (int)((sim.now - PLAN_START) / MS_US));
    return !sim.failed && sim.now < until;
}

static bool all_have_ended(void)
{
    for (int i = 0; i < sim.plan.relays; i++)
        if (sim.processes[i].relay)
            return false;
    return true;
}

/* Everything is delivered: the relays have nothing to finish and end when they are told to. */
static void stop_all(void)
{
    sim.ending = true;
    faults_clear();
    for (int i = 0; i < sim.plan.relays; i++) {
        if (!sim.processes[i].relay)
            sim.processes[i].wake_at = INSTANT_NEVER;
        else if (sim.processes[i].stop_signals == 0)
            process_stop(i);
    }
    instant_us until = sim.now + STOP_MAX_US;
    while (!all_have_ended() && goes_on(until))
        step();
    if (!all_have_ended())
        judge_violation("stop", NULL, "a relay was told to stop and goes on");
}

static void tear_down(void)
{
    sim.trace = false;
    for (int i = 0; i < sim.plan.relays; i++) {
        sim.current = i;
        if (sim.processes[i].relay)
            process_end(i, 0);
    }
    arena_free(sim.arena);
}

bool world_run(uint64_t seed, bool trace)
{
    set_up(seed, trace);
    instant_us until = sim.plan.calm_at + DRAIN_MAX_US;
    bool drained = false;
    while (!drained && goes_on(until)) {
        step();
        drained = sim.steps % 16 == 0 && is_drained();
    }
    if (!sim.failed)
        judge_end(drained);
    if (!sim.failed)
        stop_all();
    if (!sim.failed && result_unread() != 0)
        judge_violation("memory", NULL, "%" PRId64 " results were not cleared", result_unread());
    bool ok = !sim.failed;
    sim.totals.runs++;
    sim.totals.turns += sim.turns;
    tear_down();
    return ok;
}
