/* Runs the relay's own loop against a simulated PostgreSQL and simulated sinks: simulation [--seed N] [--count N]
 * [--jobs N] [--trace]. One seed is one run, and runs the same every time. */
#include "tests/simulation/world.h"

#include <argp.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define FAILURES_MAX 5
#define TICK_S 2 /* of processor time: longer than any step takes */

struct arguments {
    uint64_t seed, count, jobs;
    bool trace;
};

static const struct argp_option options[] = {
    {"seed", 's', "N", 0, "the first seed; 1", 0},
    {"count", 'c', "N", 0, "how many seeds from there on; 1", 0},
    {"jobs", 'j', "N", 0, "processes that share them; 1", 0},
    {"trace", 't', NULL, 0, "print every step, and the log of the relays", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 's':
        arguments->seed = strtoull(arg, NULL, 10);
        return 0;
    case 'c':
        arguments->count = strtoull(arg, NULL, 10);
        return 0;
    case 'j':
        arguments->jobs = strtoull(arg, NULL, 10);
        return 0;
    case 't':
        arguments->trace = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp argp = {
    .options = options, .parser = parse_option, .doc = "Checks the guarantees in simulated runs, one a seed."};

static char running[40]; /* for a signal handler, which may not format */

/* A failed assertion of the relay's, a crash, or a loop without end: the seed is all that is needed to see it again. */
static void tell_seed(int number)
{
    static uint64_t seed, steps;
    if (number == SIGVTALRM && (seed != sim.seed || steps != sim.steps)) {
        seed = sim.seed;
        steps = sim.steps;
        return;
    }
    bool hangs = number == SIGVTALRM;
    ssize_t ignored = write(STDOUT_FILENO, running, strlen(running)) +
                      write(STDOUT_FILENO, hangs ? "hangs\n" : "crashes\n", hangs ? 6 : 8);
    (void)ignored;
    _exit(1);
}

static void watch(void)
{
    static const int signals[] = {SIGABRT, SIGSEGV, SIGFPE, SIGVTALRM};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        signal(signals[i], tell_seed);
    const struct itimerval tick = {.it_interval.tv_sec = TICK_S, .it_value.tv_sec = TICK_S};
    setitimer(ITIMER_VIRTUAL, &tick, NULL);
}

/* Every jobs-th seed, beginning with the `job`-th. Returns an exit code. */
static int run_job(const struct arguments *arguments, uint64_t job)
{
    int failures = 0;
    watch();
    for (uint64_t i = job; i < arguments->count && failures < FAILURES_MAX; i += arguments->jobs) {
        snprintf(running, sizeof running, "seed %" PRIu64 ": ", arguments->seed + i);
        failures += !world_run(arguments->seed + i, arguments->trace);
        if (failures > 0)
            fflush(stdout);
    }
    return failures > 0;
}

static void add_totals(struct totals *to, const struct totals *from)
{
    to->runs += from->runs;
    to->events += from->events;
    to->deliveries += from->deliveries;
    to->repeated += from->repeated;
    to->statements += from->statements;
    to->turns += from->turns;
    to->faults += from->faults;
}

/* The totals of the jobs come back in memory that they share with us. */
static int run_jobs(const struct arguments *arguments)
{
    size_t bytes = arguments->jobs * sizeof(struct totals);
    struct totals *totals = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (totals == MAP_FAILED) {
        perror("simulation: mmap");
        return 1;
    }
    for (uint64_t job = 0; job < arguments->jobs; job++) {
        pid_t pid = fork();
        if (pid < 0) {
            perror("simulation: fork");
            return 1;
        }
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL); /* a run that is broken off leaves nothing behind */
            int code = run_job(arguments, job);
            totals[job] = sim.totals;
            exit(code);
        }
    }
    int status, failed = 0;
    while (wait(&status) > 0)
        failed |= status != 0;
    for (uint64_t job = 0; job < arguments->jobs; job++)
        add_totals(&sim.totals, &totals[job]);
    munmap(totals, bytes);
    return failed;
}

static void print_totals(const struct totals *totals)
{
    printf("%" PRIu64 " runs: %" PRIu64 " events, %" PRIu64 " deliveries, %" PRIu64 " of them repeated, %" PRIu64
           " faults, %" PRIu64 " statements, %" PRIu64 " turns\n",
           totals->runs, totals->events, totals->deliveries, totals->repeated, totals->faults, totals->statements,
           totals->turns);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.seed = 1, .count = 1, .jobs = 1};
    if (argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return 64;
    /* Memory is taken and given back all the time: keep it, but for the few large tables, which are mostly untouched.
     */
    mallopt(M_TRIM_THRESHOLD, 1 << 28);
    mallopt(M_MMAP_THRESHOLD, 1 << 17);
    if (arguments.trace)
        setvbuf(stdout, NULL, _IOLBF, 0); /* the relays' log goes to the same place, past the buffer */
    int failed = arguments.jobs > 1 ? run_jobs(&arguments) : run_job(&arguments, 0);
    print_totals(&sim.totals);
    printf("seeds %" PRIu64 " to %" PRIu64 ": %s\n", arguments.seed, arguments.seed + arguments.count - 1,
           failed ? "VIOLATIONS" : "no violation");
    return failed;
}
