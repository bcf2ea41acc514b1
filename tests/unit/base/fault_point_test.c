#include "relay/base/fault_point.h"

#include "tests/support/run_suite.h"
#include "tests/support/temporary_file.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void plan(const char *faults)
{
    setenv("PGCOURIER_FAULT", faults, 1);
}

static bool come_to_a(void)
{
    return FAULT_ERROR("a");
}

static bool come_to_b(void)
{
    return FAULT_ERROR("b");
}

static void come_to_c(void)
{
    FAULT_POINT("c");
}

START_TEST(point_without_a_plan_does_nothing)
{
    unsetenv("PGCOURIER_FAULT");
    ck_assert(!come_to_a());
}
END_TEST

START_TEST(step_fails_at_its_hit_and_at_no_other)
{
    plan("a:2:error,b:1:error");
    ck_assert(!come_to_a());
    ck_assert(come_to_a());
    ck_assert(!come_to_a());
    ck_assert(come_to_b());
    come_to_c();
}
END_TEST

START_TEST(step_fails_from_its_hit_on)
{
    plan("a:2:errors");
    ck_assert(!come_to_a());
    ck_assert(come_to_a());
    ck_assert(come_to_a());
    ck_assert(!come_to_b());
}
END_TEST

START_TEST(fault_is_written_down_before_it_is_done)
{
    char path[256], line[256] = "";
    int fd = temporary_file(path, sizeof path);
    setenv("PGCOURIER_FAULT_LOG", path, 1);
    plan("a:1:error");
    ck_assert(come_to_a());
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    unlink(path);
    ck_assert_int_gt(n, 0);
    ck_assert_ptr_eq(strstr(line, "{\"point\":\"a\",\"hit\":1,\"action\":\"error\",\"pid\":"), line);
    ck_assert_int_eq(line[n - 1], '\n');
}
END_TEST

START_TEST(log_is_no_concern_of_a_process_without_faults)
{
    unsetenv("PGCOURIER_FAULT");
    setenv("PGCOURIER_FAULT_LOG", "/nonexistent/log", 1);
    fault_point_start();
}
END_TEST

START_TEST(connections_are_dropped)
{
    int ends[2];
    char byte;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    plan("a:1:drop");
    ck_assert(!come_to_a());
    ck_assert_int_eq(read(ends[1], &byte, 1), 0);
    ck_assert_int_eq(send(ends[1], "x", 1, MSG_NOSIGNAL), -1);
}
END_TEST

START_TEST(stopped_process_goes_on_when_it_is_continued)
{
    int status;
    plan("a:1:stop");
    pid_t child = fork();
    if (child == 0)
        _exit(come_to_a() ? 1 : 0);
    ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
    ck_assert(WIFSTOPPED(status));
    ck_assert_int_eq(kill(child, SIGCONT), 0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

START_TEST(process_is_killed)
{
    plan("a:1:kill");
    come_to_a();
}
END_TEST

#define FOUR "a:1:error,a:1:error,a:1:error,a:1:error,"

/* Each could never happen. */
static const struct {
    const char *faults, *log, *line;
} refused[] = {
    {"a", NULL, "PGCOURIER_FAULT: cannot read `a`; write POINT:HIT:ACTION, the first hit is 1\n"},
    {"a:x:kill", NULL, "PGCOURIER_FAULT: cannot read `a:x:kill`; write POINT:HIT:ACTION, the first hit is 1\n"},
    {"a:0:kill", NULL, "PGCOURIER_FAULT: cannot read `a:0:kill`; write POINT:HIT:ACTION, the first hit is 1\n"},
    {"a:1:kill:b", NULL, "PGCOURIER_FAULT: cannot read `a:1:kill:b`; write POINT:HIT:ACTION, the first hit is 1\n"},
    {"b:1:kill,aa:1:kill", NULL, "PGCOURIER_FAULT: no point is called `aa`\n"},
    {"a:1:dance", NULL, "PGCOURIER_FAULT: no action is called `dance`; write kill, stop, drop, error or errors\n"},
    {"c:1:error", NULL, "PGCOURIER_FAULT: the step at `c` cannot be told to fail\n"},
    {FOUR FOUR FOUR FOUR "a:1:kill", NULL, "PGCOURIER_FAULT: there may be 16 faults, and `a:1:kill` is one more\n"},
    {"a:1:kill", "/nonexistent/log", "PGCOURIER_FAULT_LOG: /nonexistent/log: No such file or directory\n"},
};

START_TEST(what_could_never_happen_is_refused_at_the_start)
{
    char path[256], line[256] = "";
    int status, fd = temporary_file(path, sizeof path);
    pid_t child = fork();
    if (child == 0) {
        dup2(fd, STDERR_FILENO);
        plan(refused[_i].faults);
        if (refused[_i].log)
            setenv("PGCOURIER_FAULT_LOG", refused[_i].log, 1);
        fault_point_start();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(pread(fd, line, sizeof line - 1, 0) > 0);
    close(fd);
    unlink(path);
    ck_assert_str_eq(line, refused[_i].line);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 64);
}
END_TEST

START_TEST(log_that_cannot_be_written_ends_the_process)
{
    setenv("PGCOURIER_FAULT_LOG", "/dev/full", 1);
    plan("a:1:error");
    come_to_a();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fault_point");
    TCase *tcase = tcase_create("fault_point");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, point_without_a_plan_does_nothing);
    tcase_add_test(tcase, step_fails_at_its_hit_and_at_no_other);
    tcase_add_test(tcase, step_fails_from_its_hit_on);
    tcase_add_test(tcase, fault_is_written_down_before_it_is_done);
    tcase_add_test(tcase, log_is_no_concern_of_a_process_without_faults);
    tcase_add_test(tcase, connections_are_dropped);
    tcase_add_test(tcase, stopped_process_goes_on_when_it_is_continued);
    tcase_add_test_raise_signal(tcase, process_is_killed, SIGKILL);
    tcase_add_loop_test(tcase, what_could_never_happen_is_refused_at_the_start, 0, sizeof refused / sizeof refused[0]);
    tcase_add_test_raise_signal(tcase, log_that_cannot_be_written_ends_the_process, SIGABRT);
    return run_suite_forked(suite);
}
