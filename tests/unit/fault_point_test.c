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

START_TEST(point_without_a_plan_does_nothing)
{
    unsetenv("PGCOURIER_FAULT");
    ck_assert(!fault_point("a"));
}
END_TEST

START_TEST(step_fails_at_its_hit_and_at_no_other)
{
    plan("a:2:error,b:1:error");
    ck_assert(!fault_point("a"));
    ck_assert(fault_point("a"));
    ck_assert(!fault_point("a"));
    ck_assert(fault_point("b"));
    ck_assert(!fault_point("c"));
}
END_TEST

START_TEST(fault_is_written_down_before_it_is_done)
{
    char path[256], line[256] = "";
    int fd = temporary_file(path, sizeof path);
    setenv("PGCOURIER_FAULT_LOG", path, 1);
    plan("a:1:error");
    ck_assert(fault_point("a"));
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    unlink(path);
    ck_assert_int_gt(n, 0);
    ck_assert_ptr_eq(strstr(line, "{\"point\":\"a\",\"hit\":1,\"action\":\"error\",\"pid\":"), line);
    ck_assert_int_eq(line[n - 1], '\n');
}
END_TEST

START_TEST(journal_that_cannot_be_opened_stops_no_fault)
{
    setenv("PGCOURIER_FAULT_LOG", "/nonexistent/log", 1);
    plan("a:1:error");
    ck_assert(fault_point("a"));
}
END_TEST

START_TEST(connections_are_dropped)
{
    int ends[2];
    char byte;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    plan("a:1:drop");
    ck_assert(!fault_point("a"));
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
        _exit(fault_point("a") ? 1 : 0);
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
    fault_point("a");
}
END_TEST

#define FOUR "a:1:error,a:1:error,a:1:error,a:1:error,"

static const char *const unreadable[] = {"a", "a:x:kill", "a:1:dance", (FOUR FOUR FOUR FOUR "a:1:error")};

START_TEST(plan_that_cannot_be_read_ends_the_process)
{
    plan(unreadable[_i]);
    fault_point("a");
}
END_TEST

START_TEST(journal_that_cannot_be_written_ends_the_process)
{
    setenv("PGCOURIER_FAULT_LOG", "/dev/full", 1);
    plan("a:1:error");
    fault_point("a");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("fault_point");
    TCase *tcase = tcase_create("fault_point");
    suite_add_tcase(suite, tcase);
    tcase_add_test(tcase, point_without_a_plan_does_nothing);
    tcase_add_test(tcase, step_fails_at_its_hit_and_at_no_other);
    tcase_add_test(tcase, fault_is_written_down_before_it_is_done);
    tcase_add_test(tcase, journal_that_cannot_be_opened_stops_no_fault);
    tcase_add_test(tcase, connections_are_dropped);
    tcase_add_test(tcase, stopped_process_goes_on_when_it_is_continued);
    tcase_add_test_raise_signal(tcase, process_is_killed, SIGKILL);
    tcase_add_loop_test_raise_signal(tcase, plan_that_cannot_be_read_ends_the_process, SIGABRT, 0,
                                     sizeof unreadable / sizeof unreadable[0]);
    tcase_add_test_raise_signal(tcase, journal_that_cannot_be_written_ends_the_process, SIGABRT);
    return run_suite_forked(suite);
}
