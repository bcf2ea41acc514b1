/* sinks/exec/exec_guard.h -- no command outlives the relay.
 *
 *   exec_guard_new -> (exec_guard_watch -> commands are started)* -> exec_guard_free
 *
 * A relay that is killed loses its locks, and another one runs the same events. PR_SET_PDEATHSIG takes a command with
 * it, but not what that command has started. So there is a small process that does nothing but wait for the relay's
 * end, and then kills the process groups of all commands. */
#pragma once

#include "relay/base/error.h"

#include <stdatomic.h>
#include <stddef.h>
#include <sys/types.h>

/* The process group of one running command, in memory that the guard sees. */
struct exec_group {
    _Atomic(pid_t) id; /* 0: none */
};

struct exec_guard;

/* Room for `count` groups. Starts nothing. NULL and *err (ERROR_RESOURCE) without memory. */
struct exec_guard *exec_guard_new(size_t count, struct error *err);

/* Starts the process unless it runs. False and *err (ERROR_UNREACHABLE): start no command now. */
bool exec_guard_watch(struct exec_guard *guard, struct error *err) MUST_CHECK;

struct exec_group *exec_guard_group(struct exec_guard *guard, size_t i); /* the guard's; lives as long */

/* Ends the process. No command may be running. NULL is a no-op. */
void exec_guard_free(struct exec_guard *guard);
