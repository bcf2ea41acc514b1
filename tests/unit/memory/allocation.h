/* tests/unit/memory/allocation.h -- every allocation of a scene failed in turn.
 *
 *   allocation_fail_each(&scene) in a test; it plays the scene once for each allocation and once untouched
 *
 * The linker sends our code's malloc, calloc and realloc, and through them jansson's, and the allocations that libcurl
 * makes for us, to the functions here. Each play is a process of its own. Where memory of ours is refused, relay/base/
 * arena.h has it end there, with one line and exit code 70; where libcurl's is, the scene may go on, but it has to come
 * to its own end, and without a leak. */
#ifndef TESTS_UNIT_ALLOCATION_H
#define TESTS_UNIT_ALLOCATION_H

#include "relay/base/arena.h"
#include "tests/support/run_suite.h"

#include <check.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

struct scene {
    const char *name;
    void (*play)(void);
};

enum { END_UNTOUCHED = 0, END_TOUCHED = 3, END_WENT_ON = 4, END_LEAK = 5, END_NO_MEMORY = 70 };

static struct {
    bool armed, forever; /* forever: all allocations from `at` on fail */
    bool ours;           /* one of ours was refused */
    long count, at;      /* from 1 */
} refusal;

static inline bool is_refused(void)
{
    if (!refusal.armed)
        return false;
    refusal.count++;
    return refusal.count == refusal.at || (refusal.forever && refusal.count > refusal.at);
}

static inline bool is_ours_refused(void)
{
    /* One is enough: the process ends there, and what gcov allocates at its end is not ours. */
    bool refused = !refusal.ours && is_refused();
    refusal.ours |= refused;
    return refused;
}

/* Something was refused: what follows need not go well. */
static inline bool is_touched(void)
{
    return refusal.count >= refusal.at;
}

/* ---- what the linker puts in place of malloc and its like ---- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t bytes);
CURLcode __real_curl_global_init(long flags);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t bytes);
CURLcode __wrap_curl_global_init(long flags);

void *__wrap_malloc(size_t bytes)
{
    return is_ours_refused() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return is_ours_refused() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return is_ours_refused() ? NULL : __real_realloc(old, bytes);
}

static inline void *curl_malloc(size_t bytes)
{
    return is_refused() ? NULL : __real_malloc(bytes);
}

static inline void *curl_calloc(size_t count, size_t size)
{
    return is_refused() ? NULL : __real_calloc(count, size);
}

static inline void *curl_realloc(void *old, size_t bytes)
{
    return is_refused() ? NULL : __real_realloc(old, bytes);
}

static inline char *curl_strdup(const char *text)
{
    size_t size = strlen(text) + 1;
    char *copy = curl_malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

CURLcode __wrap_curl_global_init(long flags)
{
    return curl_global_init_mem(flags, curl_malloc, free, curl_realloc, curl_strdup, curl_calloc);
}

/* ---- Check, which allocates, too, and in a play has nowhere to go back to ---- */

void __real__mark_point(const char *file, int line);
void __wrap__mark_point(const char *file, int line);
void __wrap__ck_assert_failed(const char *file, int line, const char *expression, const char *format, ...)
    PRINTF_LIKE(4, 5);
void __real__ck_assert_failed(const char *file, int line, const char *expression, const char *format, ...);

void __wrap__mark_point(const char *file, int line)
{
    bool armed = refusal.armed;
    refusal.armed = false;
    __real__mark_point(file, line);
    refusal.armed = armed;
}

void __wrap__ck_assert_failed(const char *file, int line, const char *expression, const char *format, ...)
{
    char text[8192] = "";
    va_list args;
    va_start(args, format);
    if (format)
        vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!refusal.at)
        __real__ck_assert_failed(file, line, expression, "%s", text);
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, expression, text);
    abort();
}

/* ---- one play ---- */

static inline bool has_leaks(void)
{
#ifdef __SANITIZE_ADDRESS__
    return __lsan_do_recoverable_leak_check() != 0;
#else
    return false;
#endif
}

static inline _Noreturn void play_and_exit(const struct scene *scene, long at, bool forever, int err_fd)
{
    dup2(err_fd, STDERR_FILENO);
    json_set_alloc_funcs(memory_new, free); /* as main() does */
    refusal.at = at;
    refusal.forever = forever;
    refusal.armed = true;
    scene->play();
    refusal.armed = false;
    int end = !is_touched() ? END_UNTOUCHED : refusal.ours ? END_WENT_ON : END_TOUCHED;
    _exit(end < END_WENT_ON && has_leaks() ? END_LEAK : end);
}

static inline void read_all(int fd, char *ret, size_t size)
{
    size_t used = 0;
    for (ssize_t n; used < size - 1 && (n = read(fd, ret + used, size - 1 - used)) > 0;)
        used += (size_t)n;
    ret[used] = '\0';
}

/* How a play ended: one of END_..., or the test has failed. */
static inline int play(const struct scene *scene, long at, bool forever)
{
    int fds[2], status = 0;
    char said[4096];
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        play_and_exit(scene, at, forever, fds[1]);
    ck_assert_int_gt(child, 0);
    close(fds[1]);
    read_all(fds[0], said, sizeof said);
    close(fds[0]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    int end = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    bool told = strcmp(said, end == END_NO_MEMORY ? "pgcourier: out of memory\n" : "") == 0;
    bool good = end == END_UNTOUCHED || end == END_TOUCHED || end == END_NO_MEMORY;
    ck_assert_msg(good && told, "%s: allocation %ld%s: status 0x%x: %s", scene->name, at,
                  forever ? " and all after it" : "", (unsigned)status, said);
    return end;
}

static inline void allocation_fail_each(const struct scene *scene)
{
    long points[2] = {0, 0};
    for (int forever = 0; forever <= 1; forever++)
        while (play(scene, points[forever] + 1, forever) != END_UNTOUCHED)
            points[forever]++;
    ck_assert_msg(points[0] > 0, "%s allocates nothing", scene->name);
    printf("%s: %ld allocations failed once, %ld from then on\n", scene->name, points[0], points[1]);
}

/* A program's main(): one test, which takes the scene of its number. */
static inline int allocation_run(const char *name, const TTest *test, int scenes)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);
    tcase_add_loop_test(tcase, test, 0, scenes);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}

#endif
