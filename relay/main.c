#include "relay/base/arena.h"
#include "relay/base/fault_point.h"
#include "relay/base/libraries.h"
#include "relay/base/suggest.h"
#include "relay/commands/command.h"
#include "relay/commands/version.h"

#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* In the order of --help. */
static const struct command *const commands[] = {
    &command_run,    &command_migrate, &command_check_config, &command_status, &command_failures, &command_dead,
    &command_replay, &command_pause,   &command_resume,       &command_drain,  &command_publish,  &command_schedule,
    &command_take,   &command_done,    &command_fail_event,   &command_extend, &command_release,  &command_bench,
};

#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void print_help(FILE *out)
{
    fputs("Usage: pgcourier COMMAND [OPTION...]\n"
          "Delivers the events of PostgreSQL outbox tables, in order per key.\n\n",
          out);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-14s %s\n", commands[i]->name, commands[i]->help);
    fputs("\n  --help         print this; `pgcourier COMMAND --help` says more\n"
          "  --version      print the version\n",
          out);
}

static int unknown_command(const char *name)
{
    const char *names[COMMAND_COUNT + 1] = {NULL};
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        names[i] = commands[i]->name;
    const char *near = suggest(name, names);
    if (near)
        fprintf(stderr, "pgcourier: no command \"%s\"; did you mean \"%s\"?\n", name, near);
    else
        fprintf(stderr, "pgcourier: no command \"%s\"; see pgcourier --help\n", name);
    return EXIT_USAGE;
}

static int run_command(const struct command *command, int argc, char **argv)
{
    char name[64];
    snprintf(name, sizeof name, "pgcourier %s", command->name);
    argv[0] = name;
    return command->run(argc, argv);
}

/* A descriptor below 3 that was closed at the start would become a file or a connection that the log is written to. */
static void open_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        close(fd);
}

/* Memory holds passwords and payloads: no core file, nor one for a core_pattern that pipes it to a program, which no
 * RLIMIT_CORE keeps from it, and /proc/PID/environ for root alone. A build for tests stays open to debuggers. */
static void keep_memory_private(void)
{
#ifndef PGCOURIER_FAULT_POINTS
    prctl(PR_SET_DUMPABLE, 0);
#endif
}

int main(int argc, char **argv)
{
    keep_memory_private();
    open_standard_streams();
    FAULT_START();
    /* Without memory jansson leaves out what it has no room for. Ours ends. */
    json_set_alloc_funcs(memory_new, free);
    /* A peer or a log reader that goes away, or a file at its size limit, is an error of one write, not the end of the
     * process. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    /* Whoever starts us may ignore it, and then nobody could ask how a child ended. */
    signal(SIGCHLD, SIG_DFL);
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        char libraries[200];
        libraries_show(libraries, sizeof libraries);
        printf("pgcourier %s\nwith %s\n", PGCOURIER_VERSION, libraries);
        return EXIT_OK;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "-?") == 0) {
        print_help(stdout);
        return EXIT_OK;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(argv[1], commands[i]->name) == 0)
            return run_command(commands[i], argc - 1, argv + 1);
    return unknown_command(argv[1]);
}
