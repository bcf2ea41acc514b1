/* The relay without the descriptor that its signals come by. */
#include "relay/commands/command.h"
#include "tests/support/run_suite.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static int masked; /* what sigprocmask() returns */

int __wrap_sigprocmask(int how, const sigset_t *set, sigset_t *old);
int __wrap_signalfd(int fd, const sigset_t *set, int flags);

int __wrap_sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    (void)how;
    (void)old;
    ck_assert(sigismember(set, SIGTERM) && sigismember(set, SIGINT) && sigismember(set, SIGHUP));
    errno = EINVAL;
    return masked;
}

int __wrap_signalfd(int fd, const sigset_t *set, int flags)
{
    (void)set;
    ck_assert_int_eq(fd, -1);
    ck_assert_int_eq(flags, SFD_NONBLOCK | SFD_CLOEXEC);
    errno = EMFILE;
    return -1;
}

static const struct {
    int masked;
    const char *line;
} rows[] = {{0, "pgcourier: signalfd: Too many open files\n"}, {-1, "pgcourier: signalfd: Invalid argument\n"}};

START_TEST(relay_that_cannot_be_told_to_stop_does_not_start)
{
    char name[] = "run", option[] = "-c", file[] = "/nonexistent", said[200] = "";
    char *argv[] = {name, option, file, NULL};
    int ends[2], own = dup(STDERR_FILENO);
    masked = rows[_i].masked;
    ck_assert_int_eq(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    int code = command_run.run(3, argv);
    dup2(own, STDERR_FILENO);
    ssize_t size = read(ends[0], said, sizeof said - 1);
    close(ends[0]);
    close(ends[1]);
    close(own);
    ck_assert_int_eq(code, EXIT_TEMPFAIL);
    ck_assert_int_gt(size, 0);
    ck_assert_str_eq(said, rows[_i].line);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("command_run");
    TCase *tcase = tcase_create("command_run");
    suite_add_tcase(suite, tcase);
    tcase_add_loop_test(tcase, relay_that_cannot_be_told_to_stop_does_not_start, 0,
                        (int)(sizeof rows / sizeof rows[0]));
    return run_suite(suite);
}
