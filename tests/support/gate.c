/* Preloaded into a relay: main() begins with a stop, until somebody sends SIGCONT. A tracer that comes meanwhile sees
 * every system call of the program and none of the dynamic loader's or of the libraries' constructors. */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

typedef int main_function(int, char **, char **);
typedef int start_function(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

start_function __libc_start_main;

static main_function *program;

static int gate_main(int argc, char **argv, char **envp)
{
    unsetenv("LD_PRELOAD");
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* where only ancestors may trace */
    raise(SIGSTOP);
    return program(argc, argv, envp);
}

int __libc_start_main(main_function *start, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*loader_fini)(void), void *stack_end)
{
    start_function *real = (start_function *)(intptr_t)dlsym(RTLD_NEXT, "__libc_start_main");
    program = start;
    return real(gate_main, argc, argv, init, fini, loader_fini, stack_end);
}
