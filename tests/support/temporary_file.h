/* tests/support/temporary_file.h -- a file or folder of a test's own, where TMPDIR says. */
#ifndef TESTS_SUPPORT_TEMPORARY_FILE_H
#define TESTS_SUPPORT_TEMPORARY_FILE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

static inline void temporary_name(char *ret, size_t size)
{
    const char *folder = getenv("TMPDIR");
    int length = snprintf(ret, size, "%s/pgcourier-test-XXXXXX", folder ? folder : "/tmp");
    ck_assert(length > 0 && (size_t)length < size);
}

/* A new folder; its path is in `ret`, of `size` bytes. The caller removes it. */
static inline void temporary_folder(char *ret, size_t size)
{
    temporary_name(ret, size);
    ck_assert_ptr_nonnull(mkdtemp(ret));
}

/* A new file, open for reading and writing; its path is in `ret`, of `size` bytes. The caller closes and unlinks it. */
static inline int temporary_file(char *ret, size_t size)
{
    temporary_name(ret, size);
    int fd = mkstemp(ret);
    ck_assert_int_ge(fd, 0);
    return fd;
}

#endif
