#include "relay/base/file.h"

#include "relay/base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Reads until the end or until `max` + 1 bytes are there. */
static bool read_all(int fd, char *bytes, size_t max, size_t *ret_size)
{
    size_t size = 0;
    while (size <= max) {
        ssize_t n = read(fd, bytes + size, max + 1 - size);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            return false;
        size += n > 0 ? (size_t)n : 0;
    }
    *ret_size = size;
    return true;
}

static enum error_kind kind_of(int cause)
{
    bool scarce = cause == EMFILE || cause == ENFILE || cause == ENOMEM;
    return cause == EACCES ? ERROR_PERMISSION : scarce ? ERROR_RESOURCE : ERROR_UNREACHABLE;
}

char *file_read(const char *path, size_t max, size_t *ret_size, struct error *err)
{
    char *bytes = NULL, *ret = NULL;
    size_t size = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        error_set(err, kind_of(errno), "cannot open: %s", strerror(errno));
        goto done;
    }
    bytes = memory_new(max + 2);
    if (!read_all(fd, bytes, max, &size)) {
        error_set(err, ERROR_UNREACHABLE, "cannot read: %s", strerror(errno));
        goto done;
    }
    if (size > max) {
        error_set(err, ERROR_CONFIG, "larger than %zu bytes, which no such file should be", max);
        goto done;
    }
    bytes[size] = '\0';
    *ret_size = size;
    ret = bytes;
    bytes = NULL;
done:
    if (bytes)
        explicit_bzero(bytes, size);
    free(bytes);
    if (fd >= 0)
        close(fd);
    return ret;
}

const char *file_mode_exposed(mode_t mode, uid_t owner, uid_t reader)
{
    mode_t of_group = owner == 0 ? S_IWGRP | S_IXGRP : S_IRWXG;
    if (mode & (S_IWOTH | S_IWGRP))
        return mode & S_IWOTH ? "may be written by everybody" : "may be written by its group";
    if (mode & (S_IRWXO | of_group))
        return mode & S_IRWXO ? "may be read by everybody" : "may be read by its group";
    return reader != 0 && owner != 0 && owner != reader ? "belongs to another user, who is not root" : NULL;
}

const char *file_exposed(const char *path)
{
    struct stat of;
    bool is_file = stat(path, &of) == 0 && S_ISREG(of.st_mode);
    return is_file ? file_mode_exposed(of.st_mode, of.st_uid, geteuid()) : NULL;
}
