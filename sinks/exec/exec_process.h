/* sinks/exec/exec_process.h -- one command at work: a process group of its own, what it says on standard error, and
 * what it answers on standard output.
 *
 *   exec_process_start -> exec_process_prepare / exec_process_ended* -> exec_process_done
 *
 * The caller never waits: the end of the process is a descriptor in the poll set. */
#pragma once

#include "relay/base/pollset.h"
#include "relay/base/span.h"
#include "sinks/exec/exec_guard.h"
#include "sinks/response.h"

#define EXEC_TAIL_BYTES 512 /* of standard error that are kept, its end */

/* What all commands of a sink have in common. All borrowed. */
struct exec_program {
    const char *path; /* absolute */
    char *const *argv;
    const char *directory; /* NULL: the relay's */
    int null_fd;           /* /dev/null, for standard output that nobody asks for */
    char *stack_end;       /* of the memory that a child runs on until it is the command */
};

struct exec_process {
    pid_t pid;                 /* and its group; 0: none */
    int pidfd, output, errors; /* -1: none */
    struct response *response; /* set by the caller before each start; NULL: nobody asks */
    struct exec_group *group;  /* where the guard looks; set once by the caller */
    char tail[EXEC_TAIL_BYTES];
    size_t tail_size;
};

/* How it ended: by exit() with `code`, or by signal `signal` (> 0). */
struct exec_end {
    int code, signal;
};

/* Starts it with `input` as standard input and `environment` (NULL after the last) as its whole environment; both stay
 * the caller's. Waits only for the kernel to open the program. False and the errno in *ret_errno: nothing was run. */
bool exec_process_start(struct exec_process *process, const struct exec_program *program, int input,
                        char *const *environment, int *ret_errno) MUST_CHECK;

/* Adds what exec_process_ended() waits for. */
void exec_process_prepare(const struct exec_process *process, struct pollset *ps);

/* Reads what it said, and has it ended? Then what is left of its group is killed, and *ret filled. `ps` NULL: looks
 * without being told to. */
bool exec_process_ended(struct exec_process *process, const struct pollset *ps, struct exec_end *ret);

void exec_process_signal(const struct exec_process *process, int signal); /* to the group */

/* The last line of standard error that is not empty, as printable ASCII: it ends in a log line and in a text column of
 * any encoding. At most `size` bytes with its NUL; may be "". */
void exec_process_last_line(const struct exec_process *process, char *ret, size_t size);

/* Closes what is open and forgets the process, which is killed if it has not ended. */
void exec_process_done(struct exec_process *process);
