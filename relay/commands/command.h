/* relay/commands/command.h -- the subcommands of pgcourier. main.c finds one by name and runs it. */
#pragma once

#include "relay/base/log.h"
#include "relay/config/config.h"

#include <libpq-fe.h>

/* sysexits(3head), the vocabulary that systemd shares. */
enum exit_code {
    EXIT_OK = 0,
    EXIT_USAGE = 64,       /* wrong arguments */
    EXIT_DATAERR = 65,     /* partly done: the rest needs a remedy first */
    EXIT_UNAVAILABLE = 69, /* the database is not there */
    EXIT_SOFTWARE = 70,    /* a bug, or out of memory */
    EXIT_TEMPFAIL = 75,    /* try again later; also: stopped before everything in flight was settled */
    EXIT_NOPERM = 77,      /* the database refuses us something */
    EXIT_CONFIG = 78       /* the configuration, the table or the schema is wrong */
};

struct command {
    const char *name;
    const char *help; /* one line, for `pgcourier --help` */
    /* argv[0] is "pgcourier NAME", for argp. Returns an exit code. */
    int (*run)(int argc, char **argv);
};

extern const struct command command_run, command_migrate, command_check_config, command_status, command_dead,
    command_failures, command_replay, command_pause, command_resume, command_drain, command_publish, command_schedule,
    command_take, command_done, command_fail_event, command_extend, command_release, command_bench;

/* Of a worker's lease, as outbox.check_lease() has them. */
#define LEASE_MIN_US (100 * MS_US)
#define LEASE_MAX_US (30 * DAY_US)

int exit_code_of(enum error_kind kind);

/* For one-shot commands: prints `pgcourier: TEXT` on stderr and returns the code that belongs to it. */
int command_fail(const struct error *err);

/* A signalfd(2) with SIGTERM, SIGINT and SIGHUP, which are blocked in every thread that is started from now on. The
 * caller's to close(); -1 and *err on failure. */
int command_open_signals(struct error *err) MUST_CHECK;

/* The same with SIGTERM and SIGINT alone, for who only looks whether one of them waits to be read from the other. */
int command_open_stop_signals(struct error *err) MUST_CHECK;

uint64_t command_seed(void);
