/* The file sink: lines and their order, other writers, rotation, pipes. file_disk_test.c has what disks do. */

#include "tests/contract/file/file_setup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

START_TEST(lines_stand_in_the_order_of_submission)
{
    struct contract *c = contract_open(&setup);
    add_many(c, 500, 5000); /* two and a half buffers */
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 500);
    contract_end(c);
    char *text = file_text(path), *line = text;
    for (int id = 1; id <= 500; id++, line = strchr(line, '\n') + 1) {
        int seen = 0;
        ck_assert_int_eq(sscanf(line, "{\"id\":%d,", &seen), 1);
        ck_assert_int_eq(seen, id);
    }
    ck_assert_str_eq(line, "");
    free(text);
}
END_TEST

START_TEST(writers_that_share_a_file_do_not_mix_lines)
{
    struct contract *cs[4];
    for (int i = 0; i < 4; i++) {
        cs[i] = contract_open(&setup);
        add_many(cs[i], 200, 3000);
    }
    for (int i = 0; i < 4; i++)
        contract_submit(cs[i]);
    for (int i = 0; i < 4; i++) {
        ck_assert(contract_run(cs[i], PATIENCE_MS));
        ck_assert_uint_eq(contract_verdicts(cs[i], VERDICT_ACKED), 200);
        contract_end(cs[i]);
    }
    int torn;
    ck_assert_int_eq(count_lines(path, &torn), 800);
    ck_assert_int_eq(torn, 0);
}
END_TEST

START_TEST(waits_for_a_writer_that_holds_the_lock_without_blocking)
{
    struct contract *c = contract_open(&setup);
    add_many(c, 1, 10);
    int other = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    ck_assert_int_eq(flock(other, LOCK_EX), 0);
    contract_submit(c);
    for (int i = 0; i < 3; i++)
        contract_turn(c, 20);
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_NONE);
    close(other);
    ck_assert(contract_drain(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_ACKED);
    contract_end(c);
}
END_TEST

START_TEST(reopen_follows_a_rotation)
{
    struct contract *c = contract_open(&setup);
    struct error err;
    char rotated[128];
    int torn;
    add_many(c, 1, 10);
    ck_assert(contract_run(c, PATIENCE_MS));
    snprintf(rotated, sizeof rotated, "%s.1", path);
    ck_assert_int_eq(rename(path, rotated), 0);
    add_many(c, 1, 10);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(count_lines(rotated, &torn), 2);
    ck_assert(sink_reopen(c->sink, &err));
    add_many(c, 1, 10);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(count_lines(rotated, &torn), 2);
    ck_assert_int_eq(count_lines(path, &torn), 1);
    contract_end(c);
}
END_TEST

START_TEST(reopen_that_fails_keeps_the_old_file)
{
    struct contract *c = contract_open(&setup);
    struct error err;
    char rotated[128];
    int torn;
    snprintf(rotated, sizeof rotated, "%s.1", path);
    ck_assert_int_eq(rename(path, rotated), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    ck_assert(!sink_reopen(c->sink, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "sink file: cannot open "));
    ck_assert_int_eq(rmdir(path), 0);
    add_many(c, 1, 10);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(count_lines(rotated, &torn), 1);
    contract_end(c);
}
END_TEST

START_TEST(removed_file_is_created_again)
{
    struct contract *c = contract_open(&setup);
    int torn;
    ck_assert_int_eq(unlink(path), 0);
    add_many(c, 1, 10);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(c->ds[0]->verdict, VERDICT_ACKED);
    ck_assert_int_eq(count_lines(path, &torn), 1);
    contract_end(c);
}
END_TEST

/* Reads what there is, so that the sink can go on. */
static size_t swallow(int fd, char *text, size_t size, size_t room)
{
    ssize_t n = read(fd, text + size, room - size);
    return n > 0 ? (size_t)n : 0;
}

START_TEST(slow_reader_of_a_pipe_does_not_block)
{
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct contract *c = contract_open(&setup);
    add_many(c, 40, 10000); /* six times what a pipe holds */
    contract_submit(c);
    for (int i = 0; i < 3; i++)
        contract_turn(c, 5);
    ck_assert_uint_gt(contract_verdicts(c, VERDICT_NONE), 0);
    struct error err;
    ck_assert(sink_reopen(c->sink, &err));
    size_t room = 1u << 20, size = 0;
    char *text = calloc(1, room);
    for (instant_us until = clock_now() + PATIENCE_MS * MS_US; c->sink->in_flight > 0 && clock_now() < until;) {
        size += swallow(reader, text, size, room - 1);
        contract_turn(c, 5);
    }
    swallow(reader, text, size, room - 1);
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 40);
    size_t lines = 0;
    ck_assert_int_eq(text[0], '\n');
    for (char *line = text + 1; *line; line = strchr(line, '\n') + 1, lines++)
        ck_assert_int_eq(strncmp(line, "{\"id\":", 6), 0);
    ck_assert_uint_eq(lines, 40);
    free(text);
    contract_end(c);
    close(reader);
}
END_TEST

START_TEST(pipe_whose_reader_is_gone_is_unreachable_until_one_comes_back)
{
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct contract *c = contract_open(&setup);
    close(reader);
    add_many(c, 3, 10);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_RETRY), 3);
    ck_assert_int_eq(c->ds[0]->cause->kind, ERROR_UNREACHABLE);
    ck_assert_int_eq(contract_probe(c, "", PATIENCE_MS), REACH_NO);
    reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_eq(contract_probe(c, "", PATIENCE_MS), REACH_YES);
    struct delivery *d = contract_add(c, "8", span_of("1"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    contract_end(c);
    close(reader);
}
END_TEST

/* Its reader never closes it, so that what a writer left there, or is killed in the middle of, stays. */
START_TEST(line_torn_in_a_pipe_takes_no_later_one_with_it)
{
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct contract *c = contract_open(&setup);
    add_many(c, 1, 100000); /* more than a pipe holds */
    contract_submit(c);
    contract_turn(c, 5);
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_NONE), 1);
    contract_end(c);
    char *text = calloc(1, 200000);
    size_t size = swallow(reader, text, 0, 199999), torn = size;
    ck_assert_ptr_null(memrchr(text + 1, '\n', size - 1));

    c = contract_open(&setup);
    add_many(c, 2, 10);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_ACKED), 2);
    struct error err;
    ck_assert(sink_reopen(c->sink, &err));
    contract_add(c, "8", span_of("1"));
    ck_assert(contract_run(c, PATIENCE_MS));
    contract_end(c);
    swallow(reader, text, size, 199999);
    ck_assert_msg(strncmp(text + torn, "\n{\"id\":1,", 9) == 0, "%.20s", text + torn);
    size_t lines = 0;
    for (char *line = text + torn + 1; *line; line = strchr(line, '\n') + 1, lines++)
        ck_assert_int_eq(strncmp(line, "{\"id\":", 6), 0); /* reopening it left no empty line */
    ck_assert_uint_eq(lines, 3);
    free(text);
    close(reader);
}
END_TEST

/* A write of so many bytes goes into a pipe as a whole or not at all, so nobody can be killed in the middle. */
START_TEST(short_lines_are_written_whole)
{
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    int reader = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct contract *c = contract_open(&setup);
    add_many(c, 100, 1500); /* more than a pipe holds */
    contract_submit(c);
    contract_turn(c, 5);
    ck_assert_uint_gt(contract_verdicts(c, VERDICT_NONE), 0);
    contract_end(c);
    char *text = calloc(1, 200000);
    size_t size = swallow(reader, text, 0, 199999);
    ck_assert_uint_gt(size, 30000);
    ck_assert_int_eq(text[size - 1], '\n');
    free(text);
    close(reader);
}
END_TEST

START_TEST(dash_is_standard_output)
{
    int ends[2], saved = dup(STDOUT_FILENO);
    ck_assert_int_eq(pipe(ends), 0);
    fflush(stdout);
    dup2(ends[1], STDOUT_FILENO);
    settings.path = (char[]){"-"};
    struct contract *c = contract_open(&setup);
    add_many(c, 2, 10);
    bool finished = contract_run(c, PATIENCE_MS);
    contract_end(c);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(ends[1]);
    char text[1024] = "";
    ck_assert(finished);
    ck_assert_int_gt(read(ends[0], text, sizeof text - 1), 0);
    ck_assert_int_eq(strncmp(text, "{\"id\":1,", 8), 0);
    ck_assert_ptr_nonnull(strstr(text, "\n{\"id\":2,"));
    close(ends[0]);
}
END_TEST

static const struct {
    const char *path, *mode, *wanted;
} broken[] = {
    {"/nonexistent/dir/x", "0640",
     "sink file: cannot open /nonexistent/dir/x to append: No such file or directory; create its directory"},
    {"/tmp", "0640", "sink file: cannot open /tmp to append: Is a directory; name a file in it"},
    {"/dev/null", "rw-r--",
     "sink file: mode `rw-r--` is not a file permission; write an octal number such as 0640 that lets the owner read "
     "and write"},
    {"/dev/null", "0440",
     "sink file: mode `0440` is not a file permission; write an octal number such as 0640 that lets the owner read "
     "and write"},
};

START_TEST(settings_that_cannot_work_are_refused_in_one_line)
{
    struct error err;
    char *wrong_path = strdup(broken[_i].path), *mode = strdup(broken[_i].mode);
    settings = (struct file_settings){.path = wrong_path, .mode = mode};
    ck_assert_ptr_null(sink_open(&sink_file, "file", &settings, &err));
    ck_assert_str_eq(err.text, broken[_i].wanted);
    ck_assert_int_eq(err.kind, ERROR_CONFIG);
    free(wrong_path);
    free(mode);
}
END_TEST

START_TEST(pipe_without_a_reader_is_refused)
{
    struct error err;
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    ck_assert_ptr_null(sink_open(&sink_file, "file", &settings, &err));
    ck_assert_ptr_nonnull(strstr(err.text, "nobody reads this pipe: start its reader"));
    ck_assert_int_eq(err.kind, ERROR_UNREACHABLE);
}
END_TEST

START_TEST(opening_that_may_succeed_later_is_not_the_configurations_fault)
{
    struct error err;
    struct rlimit before;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    struct sink *sink = sink_open(&sink_file, "file", &settings, &err);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert_ptr_null(sink);
    ck_assert_ptr_nonnull(strstr(err.text, "Too many open files"));
    ck_assert_int_eq(err.kind, ERROR_RESOURCE);
}
END_TEST

static TCase *file_tcase(void)
{
    TCase *tcase = tcase_create("only file");
    tcase_add_checked_fixture(tcase, start_test, stop_test);
    tcase_add_test(tcase, lines_stand_in_the_order_of_submission);
    tcase_add_test(tcase, writers_that_share_a_file_do_not_mix_lines);
    tcase_add_test(tcase, waits_for_a_writer_that_holds_the_lock_without_blocking);
    tcase_add_test(tcase, reopen_follows_a_rotation);
    tcase_add_test(tcase, reopen_that_fails_keeps_the_old_file);
    tcase_add_test(tcase, removed_file_is_created_again);
    tcase_add_test(tcase, slow_reader_of_a_pipe_does_not_block);
    tcase_add_test(tcase, line_torn_in_a_pipe_takes_no_later_one_with_it);
    tcase_add_test(tcase, short_lines_are_written_whole);
    tcase_add_test(tcase, pipe_whose_reader_is_gone_is_unreachable_until_one_comes_back);
    tcase_add_test(tcase, dash_is_standard_output);
    tcase_add_loop_test(tcase, settings_that_cannot_work_are_refused_in_one_line, 0,
                        (int)(sizeof broken / sizeof broken[0]));
    tcase_add_test(tcase, pipe_without_a_reader_is_refused);
    tcase_add_test(tcase, opening_that_may_succeed_later_is_not_the_configurations_fault);
    return tcase;
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    setup.start = start;
    setup.stop = stop;
    Suite *suite = suite_create("file");
    suite_add_tcase(suite, contract_tcase(&setup));
    suite_add_tcase(suite, file_tcase());
    return run_suite(suite);
}
