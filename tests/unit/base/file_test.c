#include "relay/base/file.h"

#include "tests/support/run_suite.h"
#include "tests/support/temporary_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[256];
static struct error err;
static size_t size;

static void set_up(void)
{
    int fd = temporary_file(path, sizeof path);
    ck_assert_int_eq(write(fd, "a\0bc", 4), 4);
    close(fd);
    size = 99;
}

static void tear_down(void)
{
    unlink(path);
}

static void assert_refused(const char *name, size_t max, enum error_kind kind, const char *text)
{
    ck_assert_ptr_null(file_read(name, max, &size, &err));
    ck_assert_int_eq(err.kind, kind);
    ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
    ck_assert_uint_eq(size, 99);
}

START_TEST(file_is_read_whole_and_ends_with_nul)
{
    char *bytes = file_read(path, 4, &size, &err);
    ck_assert_ptr_nonnull(bytes);
    ck_assert_uint_eq(size, 4);
    ck_assert_int_eq(memcmp(bytes, "a\0bc\0", 5), 0);
    free(bytes);
}
END_TEST

START_TEST(file_over_the_limit_is_refused)
{
    assert_refused(path, 3, ERROR_CONFIG, "larger than 3 bytes");
}
END_TEST

START_TEST(what_is_not_there_or_no_file_is_refused)
{
    assert_refused("/nonexistent/file", 4, ERROR_UNREACHABLE, "cannot open: No such file");
    assert_refused("/tmp", 4, ERROR_UNREACHABLE, "cannot read: Is a directory");
}
END_TEST

START_TEST(file_of_others_is_refused)
{
    ck_assert_int_eq(chmod(path, 0), 0);
    uid_t before = geteuid();
    ck_assert(before != 0 || seteuid(65534) == 0); /* root may read everything */
    assert_refused(path, 4, ERROR_PERMISSION, "cannot open: Permission denied");
    ck_assert(before != 0 || seteuid(before) == 0);
}
END_TEST

static const struct {
    mode_t mode;
    uid_t owner, reader;
    const char *why;
} modes[] = {
    {0600, 7, 7, NULL},
    {0400, 7, 7, NULL},
    {0600, 0, 7, NULL}, /* by an access list, as systemd has for its credentials */
    {0640, 0, 7, NULL},
    {0440, 0, 7, NULL},
    {0600, 8, 0, NULL},
    {0640, 7, 7, "may be read by its group"},
    {0644, 7, 7, "may be read by everybody"},
    {0644, 0, 7, "may be read by everybody"},
    {0604, 0, 0, "may be read by everybody"},
    {0620, 7, 7, "may be written by its group"},
    {0660, 0, 7, "may be written by its group"},
    {0602, 0, 7, "may be written by everybody"},
    {0666, 7, 7, "may be written by everybody"},
    {0600, 8, 7, "belongs to another user, who is not root"},
    {0400, 8, 7, "belongs to another user, who is not root"},
};

START_TEST(secret_is_for_its_reader_and_root_alone)
{
    const char *why = file_mode_exposed(S_IFREG | modes[_i].mode, modes[_i].owner, modes[_i].reader);
    ck_assert_pstr_eq(why, modes[_i].why);
}
END_TEST

START_TEST(mode_and_owner_are_those_of_the_file)
{
    char name[300];
    snprintf(name, sizeof name, "%s.link", path);
    ck_assert_int_eq(symlink(path, name), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
    ck_assert_ptr_null(file_exposed(path));
    ck_assert_int_eq(chmod(path, 0604), 0);
    ck_assert_str_eq(file_exposed(path), "may be read by everybody");
    ck_assert_str_eq(file_exposed(name), "may be read by everybody");
    ck_assert_int_eq(unlink(name), 0);
    ck_assert_ptr_null(file_exposed("/dev/null"));
    ck_assert_ptr_null(file_exposed("/nonexistent"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("file");
    TCase *tcase = tcase_create("file");
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, file_is_read_whole_and_ends_with_nul);
    tcase_add_test(tcase, file_over_the_limit_is_refused);
    tcase_add_test(tcase, what_is_not_there_or_no_file_is_refused);
    tcase_add_test(tcase, file_of_others_is_refused);
    tcase_add_loop_test(tcase, secret_is_for_its_reader_and_root_alone, 0, (int)(sizeof modes / sizeof modes[0]));
    tcase_add_test(tcase, mode_and_owner_are_those_of_the_file);
    return run_suite(suite);
}
