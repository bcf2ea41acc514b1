#include "sinks/exec/exec_guard.h"

#include "relay/base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct exec_guard {
    struct exec_group *groups; /* in memory that both processes have */
    size_t count;
    int line;  /* nothing is ever written to it: its end, closed with the relay, is the message */
    pid_t pid; /* 0: not started */
};

struct exec_guard *exec_guard_new(size_t count, struct error *err)
{
    size_t bytes = count * sizeof(struct exec_group);
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        error_set(err, ERROR_RESOURCE, "no memory for %zu commands: %s", count, strerror(errno));
        return NULL;
    }
    struct exec_guard *guard = memory_new(sizeof *guard);
    *guard = (struct exec_guard){.groups = shared, .count = count, .line = -1};
    return guard;
}

struct exec_group *exec_guard_group(struct exec_guard *guard, size_t i)
{
    return &guard->groups[i];
}

/* Runs in a copy of a process that may have threads: nothing but what is async-signal-safe. No descriptor of the
 * relay's stays open here, or its database sessions would live on without it, locks and all. */
static _Noreturn void stand_guard(const struct exec_guard *guard, int line)
{
    char byte;
    setsid();
    if (dup2(line, STDIN_FILENO) < 0 || chdir("/") != 0 || close_range(STDOUT_FILENO, ~0U, 0) != 0)
        _exit(EXIT_FAILURE);
    prctl(PR_SET_NAME, "exec-guard"); /* from now on it is one */
    while (read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR)
        continue;
    for (size_t i = 0; i < guard->count; i++) {
        pid_t group = atomic_load(&guard->groups[i].id);
        if (group > 0)
            kill(-group, SIGKILL);
    }
    _exit(EXIT_SUCCESS);
}

static void end_watch(struct exec_guard *guard)
{
    if (guard->line >= 0)
        close(guard->line);
    guard->line = -1;
    guard->pid = 0;
}

bool exec_guard_watch(struct exec_guard *guard, struct error *err)
{
    int line[2];
    sigset_t all, before;
    if (guard->pid > 0 && waitpid(guard->pid, NULL, WNOHANG) == 0)
        return true;
    end_watch(guard);
    if (pipe2(line, O_CLOEXEC) != 0)
        return error_set(err, ERROR_UNREACHABLE, "cannot watch over commands: pipe: %s", strerror(errno));
    /* It is there to see the relay's end, whoever signals both. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = fork();
    int cause = errno;
    if (pid == 0)
        stand_guard(guard, line[0]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(line[0]);
    if (pid < 0) {
        close(line[1]);
        return error_set(err, ERROR_UNREACHABLE, "cannot watch over commands: fork: %s", strerror(cause));
    }
    guard->line = line[1];
    guard->pid = pid;
    return true;
}

void exec_guard_free(struct exec_guard *guard)
{
    if (!guard)
        return;
    if (guard->pid > 0) {
        kill(guard->pid, SIGKILL);
        while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    end_watch(guard);
    munmap(guard->groups, guard->count * sizeof(struct exec_group));
    free(guard);
}
