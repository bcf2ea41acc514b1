/* Runs the relay's own loop against a simulated PostgreSQL and simulated sinks: simulation [--seed N] [--count N]
 * [--jobs N] [--trace]. One seed is one run, and runs the same every time. */
#include "tests/simulation/world.h"

#include <argp.h>
#include <ctype.h>
#include <errno.h>
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
#define JOBS_MAX 1024
#define EXIT_USAGE 2

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

/* A number that is misread is a run of nothing, which passes. */
static uint64_t read_number(const char *option, const char *text, uint64_t min, uint64_t max)
{
    char *end;
    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    if (isdigit((unsigned char)text[0]) && *end == '\0' && errno == 0 && number >= min && number <= max)
        return number;
    fprintf(stderr, "simulation: --%s wants a number from %" PRIu64 " to %" PRIu64 ", not `%s`\n", option, min, max,
            text);
    exit(EXIT_USAGE);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct arguments *arguments = state->input;
    switch (key) {
    case 's':
        arguments->seed = read_number("seed", arg, 0, UINT64_MAX);
        return 0;
    case 'c':
        arguments->count = read_number("count", arg, 1, UINT64_MAX);
        return 0;
    case 'j':
        arguments->jobs = read_number("jobs", arg, 1, JOBS_MAX);
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

static char running[64]; /* for a signal handler, which may not format; with room for what it adds */

/* A failed assertion of the relay's, a crash, or a loop without end: the seed is all that is needed to see it again. */
static void tell_seed(int number)
{
    static uint64_t seed, steps;
    if (number == SIGVTALRM && (seed != sim.seed || steps != sim.steps)) {
        seed = sim.seed;
        steps = sim.steps;
        return;
    }
    /* In one go: jobs that write at the same time do not mix their lines. */
    const char *what = number == SIGVTALRM ? "hangs\n" : "crashes\n";
    memcpy(running + strlen(running), what, strlen(what) + 1);
    ssize_t ignored = write(STDOUT_FILENO, running, strlen(running));
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
    argp_err_exit_status = EXIT_USAGE;
    if (argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return EXIT_USAGE;
    /* Memory is taken and given back all the time: keep it. But what a relay takes a megabyte of, to write a few words
     * into it, comes from the system, which knows that it is zero; so there must not be as much to be had at the end of
     * the heap. */
    mallopt(M_TRIM_THRESHOLD, 1 << 20);
    mallopt(M_MMAP_THRESHOLD, 1 << 18);
    if (arguments.trace)
        setvbuf(stdout, NULL, _IOLBF, 0); /* the relays' log goes to the same place, past the buffer */
    int failed = arguments.jobs > 1 ? run_jobs(&arguments) : run_job(&arguments, 0);
    print_totals(&sim.totals);
    printf("seeds %" PRIu64 " to %" PRIu64 ": %s\n", arguments.seed, arguments.seed + arguments.count - 1,
           failed ? "VIOLATIONS" : "no violation");
    return failed;
}
