#include "relay/commands/command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>

/* Rows that are not here are a bug's: 70. */
static const struct {
    enum error_kind kind;
    enum exit_code code;
} exit_codes[] = {
    {ERROR_NONE, EXIT_OK},
    {ERROR_USAGE, EXIT_USAGE},
    {ERROR_REFUSED, EXIT_USAGE}, /* a value, and a command has its values from its arguments */
    {ERROR_CONFIG, EXIT_CONFIG},
    {ERROR_ROUTE, EXIT_CONFIG},
    {ERROR_PERMISSION, EXIT_NOPERM},
    {ERROR_UNREACHABLE, EXIT_UNAVAILABLE},
    {ERROR_OVERLOADED, EXIT_TEMPFAIL},
    {ERROR_TIMEOUT, EXIT_TEMPFAIL},
    {ERROR_CONFLICT, EXIT_TEMPFAIL},
    {ERROR_LOST_CLAIM, EXIT_TEMPFAIL},
    {ERROR_RESOURCE, EXIT_TEMPFAIL},
};

int exit_code_of(enum error_kind kind)
{
    for (size_t i = 0; i < sizeof exit_codes / sizeof exit_codes[0]; i++)
        if (exit_codes[i].kind == kind)
            return (int)exit_codes[i].code;
    return EXIT_SOFTWARE;
}

int command_fail(const struct error *err)
{
    fprintf(stderr, "pgcourier: %s\n", err->text);
    return exit_code_of(err->kind);
}

static int open_signals(int number, struct error *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (number)
        sigaddset(&set, number);
    int fd = sigprocmask(SIG_BLOCK, &set, NULL) == 0 ? signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC) : -1;
    if (fd < 0)
        error_set(err, ERROR_RESOURCE, "signalfd: %s", strerror(errno));
    return fd;
}

int command_open_signals(struct error *err)
{
    return open_signals(SIGHUP, err);
}

int command_open_stop_signals(struct error *err)
{
    return open_signals(0, err);
}

uint64_t command_seed(void)
{
    uint64_t seed;
    arc4random_buf(&seed, sizeof seed);
    return seed;
}
