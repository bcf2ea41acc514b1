/* DESIGN. posix_spawn() cannot set PR_SET_PDEATHSIG, fork() copies the page tables of a relay that may be large, and
 * after either only what is async-signal-safe may run. So this is what posix_spawn() does itself: a child in the same
 * memory, on a stack of its own, while the relay stands still until execve() has succeeded or failed. It makes system
 * calls and nothing else, all signals are blocked meanwhile, and its errno comes back through the memory it shares. */
#include "sinks/exec/exec_process.h"

#include "relay/base/descriptor_limit.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define PIECE_BYTES 4096
#define READS_MAX 32 /* for each turn: a pipe's worth and a little more */

struct launch {
    const struct exec_program *program;
    char *const *environment;
    int input, output, errors;
    pid_t relay;
    struct rlimit descriptors;
    struct exec_group *group;
    int error; /* of the step that failed */
};

/* Ignored signals stay ignored through execve(); the relay ignores some, and whoever started it may have ignored more.
 * The system call, as sanitizers keep books in memory that is the relay's. All zero is SIG_DFL, however the kernel's
 * struct looks. */
static void reset_signals(void)
{
    static const char zeros[64];
    for (int signal = 1; signal < NSIG; signal++)
        syscall(SYS_rt_sigaction, signal, zeros, NULL, (size_t)(NSIG - 1) / 8);
}

__attribute__((no_sanitize("address", "thread", "undefined"))) static int become_command(void *data)
{
    struct launch *launch = data;
    const struct exec_program *program = launch->program;
    sigset_t none;
    sigemptyset(&none);
    /* From here on the guard knows of it. Until it leads a group, it dies with the relay by the second means. */
    atomic_store(&launch->group->id, getpid());
    bool good = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
    if (getppid() != launch->relay) /* which ended before that took effect */
        _exit(127);
    reset_signals();
    good = good && setsid() >= 0 && (!program->directory || chdir(program->directory) == 0) &&
           dup2(launch->input, STDIN_FILENO) >= 0 &&
           dup2(launch->output >= 0 ? launch->output : program->null_fd, STDOUT_FILENO) >= 0 &&
           dup2(launch->errors, STDERR_FILENO) >= 0 && close_range(STDERR_FILENO + 1, ~0U, 0) == 0 &&
           sigprocmask(SIG_SETMASK, &none, NULL) == 0;
    setrlimit(RLIMIT_NOFILE, &launch->descriptors); /* one that is too high is no reason not to run */
    if (good)
        execve(program->path, program->argv, launch->environment);
    launch->error = errno;
    _exit(127);
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* A pipe of which we have the end that is read. Only that one does not wait: a command does, for room, as everybody. */
static bool open_pipe(int *ret_ours, int *ret_its)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    *ret_ours = ends[0];
    *ret_its = ends[1];
    return fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
}

static void clone_command(struct exec_process *process, struct launch *launch)
{
    sigset_t all, before;
    int pidfd = -1;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid_t pid = clone(become_command, launch->program->stack_end, CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD,
                      launch, &pidfd);
    if (pid < 0)
        launch->error = errno;
    sigprocmask(SIG_SETMASK, &before, NULL);
    process->pid = pid > 0 ? pid : 0;
    process->pidfd = pidfd;
}

bool exec_process_start(struct exec_process *process, const struct exec_program *program, int input,
                        char *const *environment, int *ret_errno)
{
    struct launch launch = {.program = program,
                            .environment = environment,
                            .input = input,
                            .output = -1,
                            .errors = -1,
                            .relay = getpid(),
                            .descriptors = descriptor_limit_of_children(),
                            .group = process->group};
    process->tail_size = 0;
    if (!open_pipe(&process->errors, &launch.errors) ||
        (process->response && !open_pipe(&process->output, &launch.output)))
        launch.error = errno;
    else
        clone_command(process, &launch);
    close_fd(&launch.errors);
    close_fd(&launch.output);
    if (launch.error == 0)
        return true;
    *ret_errno = launch.error;
    if (process->pid > 0) {
        kill(process->pid, SIGKILL);
        /* At once: the kernel lets the parent go on from inside exit(). */
        waitid(P_PID, (id_t)process->pid, NULL, WEXITED);
    }
    process->pid = 0;
    atomic_store(&process->group->id, 0);
    exec_process_done(process);
    return false;
}

void exec_process_prepare(const struct exec_process *process, struct pollset *ps)
{
    pollset_add(ps, process->pidfd, POLLIN);
    pollset_add(ps, process->output, POLLIN);
    pollset_add(ps, process->errors, POLLIN);
}

static void keep_tail(struct exec_process *process, struct span said)
{
    if (said.size > sizeof process->tail)
        said = (struct span){said.data + said.size - sizeof process->tail, sizeof process->tail};
    size_t room = sizeof process->tail - said.size;
    size_t keep = process->tail_size < room ? process->tail_size : room;
    memmove(process->tail, process->tail + process->tail_size - keep, keep);
    memcpy(process->tail + keep, said.data, said.size);
    process->tail_size = keep + said.size;
}

/* False when there is nothing more for now; closed when there never will be. */
static bool read_piece(int *fd, char bytes[PIECE_BYTES], struct span *ret)
{
    ssize_t size = read(*fd, bytes, PIECE_BYTES);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR))
        close_fd(fd);
    *ret = (struct span){bytes, size > 0 ? (size_t)size : 0};
    return size > 0;
}

static void read_errors(struct exec_process *process)
{
    char bytes[PIECE_BYTES];
    struct span said;
    for (int i = 0; i < READS_MAX && read_piece(&process->errors, bytes, &said); i++)
        keep_tail(process, said);
}

/* What is too long is read on, so that the command comes to its end. */
static void read_output(struct exec_process *process)
{
    char bytes[PIECE_BYTES];
    struct span said;
    for (int i = 0; i < READS_MAX && read_piece(&process->output, bytes, &said); i++)
        response_add(process->response, said);
}

/* A pipe may hold more than is read at a time, and what the command has left behind may go on writing. */
static void read_to_end(struct exec_process *process)
{
    char bytes[PIECE_BYTES];
    struct span said;
    while (process->output >= 0 && !process->response->cut && read_piece(&process->output, bytes, &said))
        response_add(process->response, said);
    if (process->errors >= 0)
        read_errors(process);
}

static bool is_due(const struct pollset *ps, int fd)
{
    return fd >= 0 && (!ps || pollset_revents(ps, fd));
}

bool exec_process_ended(struct exec_process *process, const struct pollset *ps, struct exec_end *ret)
{
    siginfo_t info = {0};
    if (is_due(ps, process->errors))
        read_errors(process);
    if (is_due(ps, process->output))
        read_output(process);
    if (!is_due(ps, process->pidfd) || waitid(P_PID, (id_t)process->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return false;
    read_to_end(process);
    bool exited = info.si_code == CLD_EXITED;
    *ret = (struct exec_end){.code = exited ? info.si_status : 0, .signal = exited ? 0 : info.si_status};
    exec_process_done(process);
    return true;
}

void exec_process_signal(const struct exec_process *process, int signal)
{
    if (process->pid > 0)
        kill(-process->pid, signal);
}

/* Until it is waited for, neither its id nor its group's can be anybody else's: so the group is killed, and the guard
 * told, before that. One that has not ended is left for the kernel's reaper. */
void exec_process_done(struct exec_process *process)
{
    if (process->pid > 0) {
        kill(-process->pid, SIGKILL);
        atomic_store(&process->group->id, 0);
        waitid(P_PID, (id_t)process->pid, NULL, WEXITED | WNOHANG);
    }
    process->pid = 0;
    close_fd(&process->pidfd);
    close_fd(&process->output);
    close_fd(&process->errors);
}

void exec_process_last_line(const struct exec_process *process, char *ret, size_t size)
{
    size_t end = process->tail_size, from, used = 0;
    while (end > 0 && (unsigned char)process->tail[end - 1] <= ' ')
        end--;
    for (from = end; from > 0 && process->tail[from - 1] != '\n' && process->tail[from - 1] != '\r';)
        from--;
    for (size_t i = from; i < end && used + 1 < size; i++)
        ret[used++] = process->tail[i] >= ' ' && process->tail[i] <= '~' ? process->tail[i] : '?';
    ret[used] = '\0';
}
