/* tests/support/coverage_end.c -- counters of processes that end abruptly, in the coverage build alone.
 *
 * gcov writes its counters when a program ends with exit(). The linker sends our code's _exit(), abort() and raise() to
 * the functions here, which write them first: otherwise the lines that end a process would seem never to have run. What
 * tests kill they send SIGUSR2, and the process writes them and kills itself. A child that has only borrowed its
 * parent's memory until it executes something leaves them to the parent, who could not write them any more. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

void __gcov_dump(void);
void __gcov_reset(void);
_Noreturn void __real__exit(int status);
_Noreturn void __real_abort(void);
int __real_raise(int number);
_Noreturn void __wrap__exit(int status);
_Noreturn void __wrap_abort(void);
int __wrap_raise(int number);

static pid_t owner; /* of this memory */

static void own(void)
{
    owner = getpid();
}

__attribute__((constructor)) static void own_from_now_on(void)
{
    own();
    pthread_atfork(NULL, NULL, own);
}

void __wrap__exit(int status)
{
    if (getpid() == owner)
        __gcov_dump();
    __real__exit(status);
}

void __wrap_abort(void)
{
    __gcov_dump();
    __real_abort();
}

static void die(int number)
{
    (void)number;
    __real_raise(SIGKILL);
}

/* A death in the middle of malloc() leaves a heap that writing counters may fail in: then they are lost, no more. */
static void write_and_die(int number)
{
    const struct sigaction action = {.sa_handler = die};
    sigaction(SIGABRT, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    __gcov_dump();
    die(number);
}

__attribute__((constructor)) static void await_death(void)
{
    const struct sigaction action = {.sa_handler = write_and_die};
    sigaction(SIGUSR2, &action, NULL);
}

int __wrap_raise(int number)
{
    __gcov_dump();
    __gcov_reset(); /* what goes on after SIGSTOP is counted anew, and added */
    return __real_raise(number);
}
