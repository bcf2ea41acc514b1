/* The file sink on a disk that fails, is full, or was left in the middle of a line. */

#include "tests/contract/file/file_setup.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Stands before libc's: the script of a disk that fails. */
static int sync_errors, sync_errno, syncs;

int fdatasync(int fd)
{
    (void)fd;
    syncs++;
    if (sync_errors == 0)
        return 0;
    sync_errors--;
    errno = sync_errno;
    return -1;
}

static int read_errors, read_errno;

ssize_t pread(int fd, void *buffer, size_t size, off_t offset)
{
    if (read_errors == 0)
        return syscall(SYS_pread64, fd, buffer, size, offset);
    read_errors--;
    errno = read_errno;
    return -1;
}

static void start_disk_test(void)
{
    start_test();
    sync_errors = syncs = read_errors = 0;
    sync_errno = EIO;
}

START_TEST(nothing_is_acked_before_it_is_synced)
{
    struct contract *c = contract_open(&setup);
    add_many(c, 100, 10);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(syncs, 1);
    contract_end(c);
    settings.sync = false;
    c = contract_open(&setup);
    add_many(c, 100, 10);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(syncs, 1);
    contract_end(c);
}
END_TEST

START_TEST(failed_sync_leaves_the_batch_unknown_and_opens_the_file_again)
{
    struct contract *c = contract_open(&setup);
    add_many(c, 3, 10);
    sync_errors = 1;
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_UNKNOWN), 3);
    ck_assert_int_eq(c->ds[0]->cause->kind, ERROR_UNREACHABLE);
    ck_assert_int_eq(contract_probe(c, "orders", PATIENCE_MS), REACH_YES);
    struct delivery *d = contract_add(c, "8", span_of("1"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    contract_end(c);
}
END_TEST

START_TEST(interrupted_sync_is_repeated)
{
    struct contract *c = contract_open(&setup);
    add_many(c, 3, 10);
    sync_errors = 2;
    sync_errno = EINTR;
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert(contract_verdicts(c, VERDICT_ACKED) == 3 && syncs == 3);
    contract_end(c);
}
END_TEST

START_TEST(line_torn_by_a_killed_writer_is_ended_first)
{
    struct contract *c = contract_open(&setup);
    int other = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    ck_assert_int_eq(write(other, "{\"id\":1}\n{\"id\":2,\"ke", 20), 20);
    add_many(c, 2, 10);
    ck_assert(contract_run(c, PATIENCE_MS));
    contract_end(c);
    int torn;
    ck_assert_int_eq(count_lines(path, &torn), 3);
    ck_assert_int_eq(torn, 1);
    close(other);
}
END_TEST

/* What cannot be read of the file may be a torn line: nothing is written behind it. */
START_TEST(line_that_may_be_torn_is_not_written_behind)
{
    for (read_errno = EIO; read_errno != 0; read_errno = read_errno == EIO ? EINTR : 0) {
        struct contract *c = contract_open(&setup);
        int other = open(path, O_WRONLY | O_APPEND | O_TRUNC | O_CLOEXEC);
        ck_assert_int_eq(write(other, "{\"id\":2,\"ke", 11), 11);
        struct delivery *d = contract_add(c, "7", span_of("1"));
        read_errors = 1;
        ck_assert(contract_run(c, PATIENCE_MS));
        ck_assert_int_eq(d->verdict, read_errno == EIO ? VERDICT_RETRY : VERDICT_ACKED);
        struct stat st;
        ck_assert_int_eq(fstat(other, &st), 0);
        ck_assert_int_eq(st.st_size > 11, read_errno == EINTR);
        contract_end(c);
        int torn;
        ck_assert(read_errno == EIO || (count_lines(path, &torn) == 1 && torn == 1));
        close(other);
    }
}
END_TEST

/* A file size limit cuts a write short exactly as a full disk does. */
static void limit_file_size(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

START_TEST(full_disk_keeps_whole_lines_and_retries_the_rest)
{
    struct contract *c = contract_open(&setup);
    add_many(c, 100, 1000);
    limit_file_size(50000);
    bool finished = contract_run(c, PATIENCE_MS);
    limit_file_size(RLIM_INFINITY);
    ck_assert(finished);
    size_t acked = contract_verdicts(c, VERDICT_ACKED);
    ck_assert_uint_gt(acked, 0);
    ck_assert_uint_eq(acked + contract_verdicts(c, VERDICT_RETRY), 100);
    ck_assert_int_eq(c->ds[acked]->verdict, VERDICT_RETRY);
    ck_assert_int_eq(c->ds[acked]->cause->kind, ERROR_UNREACHABLE);
    ck_assert_ptr_nonnull(strstr(c->ds[acked]->cause->text, path));
    int torn;
    ck_assert_uint_eq((size_t)count_lines(path, &torn), acked);
    ck_assert_int_eq(torn, 0);
    struct delivery *d = contract_add(c, "8", span_of("1"));
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_int_eq(d->verdict, VERDICT_ACKED);
    contract_end(c);
}
END_TEST

START_TEST(full_device_retries_everything)
{
    settings.path = (char[]){"/dev/full"};
    struct contract *c = contract_open(&setup);
    add_many(c, 3, 10);
    ck_assert(contract_run(c, PATIENCE_MS));
    ck_assert_uint_eq(contract_verdicts(c, VERDICT_RETRY), 3);
    ck_assert_str_eq(c->ds[0]->cause->text, "cannot write to /dev/full: No space left on device; make room there");
    contract_end(c);
}
END_TEST

static TCase *disk_tcase(void)
{
    TCase *tcase = tcase_create("disk");
    tcase_add_checked_fixture(tcase, start_disk_test, stop_test);
    tcase_add_test(tcase, nothing_is_acked_before_it_is_synced);
    tcase_add_test(tcase, failed_sync_leaves_the_batch_unknown_and_opens_the_file_again);
    tcase_add_test(tcase, interrupted_sync_is_repeated);
    tcase_add_test(tcase, line_torn_by_a_killed_writer_is_ended_first);
    tcase_add_test(tcase, line_that_may_be_torn_is_not_written_behind);
    tcase_add_test(tcase, full_disk_keeps_whole_lines_and_retries_the_rest);
    tcase_add_test(tcase, full_device_retries_everything);
    return tcase;
}

int main(void)
{
    signal(SIGXFSZ, SIG_IGN);
    Suite *suite = suite_create("file on a disk that fails");
    suite_add_tcase(suite, disk_tcase());
    return run_suite(suite);
}
