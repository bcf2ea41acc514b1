#include "sinks/file/append_file.h"

#include "relay/base/fault_point.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

void append_file_init(struct append_file *file, const char *path, mode_t mode, bool durable)
{
    *file = (struct append_file){.path = path, .mode = mode, .durable = durable, .fd = -1};
}

static bool is_stdout(const struct append_file *file)
{
    return strcmp(file->path, "-") == 0;
}

void append_file_close(struct append_file *file)
{
    if (file->fd >= 0 && !is_stdout(file))
        close(file->fd);
    file->fd = -1;
}

/* ---- opening ---- */

#define MAY_NOT "; give this user the right to create, read and write it"

/* A kind that is no configuration's fault lets whoever supervises a relay start it again. */
static const struct open_failure {
    int cause;
    enum error_kind kind;
    const char *remedy;
} open_failures[] = {
    {ENOENT, ERROR_CONFIG, "; create its directory"},
    {ENOTDIR, ERROR_CONFIG, ""},
    {EISDIR, ERROR_CONFIG, "; name a file in it"},
    {ELOOP, ERROR_CONFIG, ""},
    {ENAMETOOLONG, ERROR_CONFIG, ""},
    {EACCES, ERROR_PERMISSION, MAY_NOT},
    {EPERM, ERROR_PERMISSION, MAY_NOT},
    {EROFS, ERROR_PERMISSION, MAY_NOT},
    {ENXIO, ERROR_UNREACHABLE, "; nobody reads this pipe: start its reader"},
};

static bool open_failed(const char *path, struct error *err)
{
    static const struct open_failure passing = {0, ERROR_RESOURCE, ""}; /* a full disk, no descriptors left, ... */
    const struct open_failure *failure = &passing;
    int cause = errno;
    for (size_t i = 0; i < sizeof open_failures / sizeof open_failures[0]; i++)
        if (open_failures[i].cause == cause)
            failure = &open_failures[i];
    return error_set(err, failure->kind, "cannot open %s to append: %s%s", path, strerror(cause), failure->remedy);
}

static void directory_of(const char *path, char ret[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    memcpy(ret, ".", sizeof ".");
    if (slash && (size_t)(slash - path) + 1 < PATH_MAX) {
        memcpy(ret, path, (size_t)(slash - path) + 1);
        ret[slash - path + 1] = '\0';
    }
}

/* The name of a new file is not on disk before its directory is. File systems that cannot do this need not. */
static void sync_directory(const char *path)
{
    char directory[PATH_MAX];
    directory_of(path, directory);
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!fsync(fd);
    close(fd);
}

/* A regular file is opened for reading too, to see whether its last line is whole. A pipe must not be: a writer that
 * could also read would never notice that nobody else does. Neither open waits for a reader. */
static int open_path(const struct append_file *file)
{
    struct stat st;
    bool is_new = stat(file->path, &st) != 0;
    bool stream = !is_new && !S_ISREG(st.st_mode);
    int fd = open(file->path, (stream ? O_WRONLY : O_RDWR | O_CREAT) | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                  file->mode);
    if (fd >= 0 && is_new && file->durable)
        sync_directory(file->path);
    return fd;
}

bool append_file_open(struct append_file *file, struct error *err)
{
    struct stat st;
    errno = ENFILE; /* of a failure that is made */
    int fd = FAULT_ERROR("file.open") ? -1 : is_stdout(file) ? STDOUT_FILENO : open_path(file);
    if (fd < 0 || fstat(fd, &st) != 0)
        return open_failed(file->path, err);
    append_file_close(file);
    file->fd = fd;
    file->regular = !is_stdout(file) && S_ISREG(st.st_mode);
    file->torn |= !is_stdout(file) && S_ISFIFO(st.st_mode) && !file->begun;
    return true;
}

bool append_file_check(const struct append_file *file, struct error *err)
{
    struct stat st;
    if (is_stdout(file))
        return true;
    if (stat(file->path, &st) == 0) {
        bool good = !S_ISDIR(st.st_mode) && access(file->path, S_ISREG(st.st_mode) ? R_OK | W_OK : W_OK) == 0;
        if (S_ISDIR(st.st_mode))
            errno = EISDIR;
        return good || open_failed(file->path, err);
    }
    char directory[PATH_MAX];
    directory_of(file->path, directory);
    return (errno == ENOENT && access(directory, W_OK | X_OK) == 0) || open_failed(file->path, err);
}

/* ---- writing ---- */

static enum append_result write_failed(const struct append_file *file, struct error *err)
{
    int cause = errno;
    const char *remedy = cause == ENOSPC || cause == EDQUOT ? "; make room there"
                         : cause == EPIPE                   ? "; its reader is gone"
                         : cause == EFBIG                   ? "; rotate the file and send SIGHUP"
                                                            : "";
    error_set(err, ERROR_UNREACHABLE, "cannot write to %s: %s%s", is_stdout(file) ? "standard output" : file->path,
              strerror(cause), remedy);
    return APPEND_FAILED;
}

bool append_file_usable(const struct append_file *file, struct error *err)
{
    struct statvfs fs;
    if (!file->regular || fstatvfs(file->fd, &fs) != 0 || fs.f_bavail > 0)
        return true;
    errno = ENOSPC;
    return write_failed(file, err) == APPEND_DONE;
}

/* Until all is written or the kernel refuses: short writes happen on full disks and on file size limits. */
static size_t write_fully(int fd, struct span bytes)
{
    size_t written = 0;
    while (written < bytes.size) {
        /* Half of it: a short write is the worst place to end. */
        size_t size = FAULT_ERROR("file.write") ? (bytes.size - written + 1) / 2 : bytes.size - written;
        ssize_t n = write(fd, bytes.data + written, size);
        FAULT_POINT("file.wrote");
        if (n > 0)
            written += (size_t)n;
        else if (n == 0 || errno != EINTR)
            break;
    }
    return written;
}

/* Somebody was killed in the middle of a write. A reader knows the torn line by its not being JSON. */
static bool end_torn_line(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char last = '\n';
    ssize_t n;
    if (size <= 0)
        return size == 0;
    while ((n = pread(fd, &last, 1, size - 1)) < 0 && errno == EINTR)
        ;
    return n >= 0 && (last == '\n' || write_fully(fd, SPAN_LITERAL("\n")) == 1);
}

static size_t whole_lines(struct span lines, size_t size)
{
    const char *last = memrchr(lines.data, '\n', size);
    return last ? (size_t)(last - lines.data) + 1 : 0;
}

static enum append_result write_locked(struct append_file *file, struct span lines, size_t *ret_written,
                                       struct error *err)
{
    if (!end_torn_line(file->fd))
        return write_failed(file, err);
    size_t written = write_fully(file->fd, lines);
    *ret_written = written;
    if (written == lines.size)
        return APPEND_DONE;
    enum append_result result = write_failed(file, err);
    size_t whole = whole_lines(lines, written);
    if (whole < written && ftruncate(file->fd, lseek(file->fd, 0, SEEK_END) - (off_t)(written - whole)) == 0)
        *ret_written = whole;
    return result;
}

/* A removed file would take every line and keep none. A renamed one is somebody's rotation: SIGHUP ends it. */
static bool was_removed(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

/* Locks are for writers like us; a file system without them still has O_APPEND. */
static enum append_result write_regular(struct append_file *file, struct span lines, size_t *ret_written,
                                        struct error *err)
{
    if (was_removed(file->fd) && !append_file_open(file, err))
        return APPEND_FAILED;
    bool locked = flock(file->fd, LOCK_EX | LOCK_NB) == 0;
    FAULT_POINT("file.locked");
    if (!locked && errno == EWOULDBLOCK)
        return APPEND_BLOCKED;
    enum append_result result = write_locked(file, lines, ret_written, err);
    if (locked)
        (void)flock(file->fd, LOCK_UN);
    return result;
}

/* A pipe that polls writable takes PIPE_BUF bytes without blocking, whether its descriptor is non-blocking or, like
 * standard output, must stay as it is because others share it. */
static bool stream_ready(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) > 0;
}

static enum append_result stream_stopped(struct append_file *file, struct error *err)
{
    if (errno == EAGAIN || errno == EINTR)
        return APPEND_BLOCKED;
    enum append_result result = write_failed(file, err);
    file->torn = file->mid_line;
    append_file_close(file);
    return result;
}

/* As much as a pipe takes in one piece, or not at all: whole lines, where one fits. */
static size_t stream_piece(struct span lines)
{
    size_t most = lines.size < PIPE_BUF ? lines.size : PIPE_BUF, whole = whole_lines(lines, most);
    return whole > 0 ? whole : most;
}

static enum append_result write_stream(struct append_file *file, struct span lines, size_t *ret_written,
                                       struct error *err)
{
    size_t written = 0;
    while (written < lines.size) {
        if (!stream_ready(file->fd))
            return APPEND_BLOCKED;
        struct span left = {lines.data + written, lines.size - written};
        if (file->torn)
            left = SPAN_LITERAL("\n");
        ssize_t n = write(file->fd, left.data, stream_piece(left));
        if (n < 0)
            return stream_stopped(file, err);
        file->begun |= n > 0;
        if (!file->torn)
            *ret_written = written += (size_t)n;
        file->torn &= n == 0;
        file->mid_line = n > 0 ? left.data[n - 1] != '\n' : file->mid_line;
    }
    return APPEND_DONE;
}

enum append_result append_file_write(struct append_file *file, struct span lines, size_t *ret_written,
                                     struct error *err)
{
    *ret_written = 0;
    return file->regular ? write_regular(file, lines, ret_written, err) : write_stream(file, lines, ret_written, err);
}

/* Nothing is wrong where a signal comes first, as it may on a file system that is a process or elsewhere. */
static bool sync_data(int fd)
{
    int result;
    do
        result = fdatasync(fd);
    while (result != 0 && errno == EINTR);
    return result == 0;
}

bool append_file_sync(struct append_file *file, struct error *err)
{
    /* A pipe that broke after it took these lines, or any pipe, has no disk to wait for. */
    bool fails = FAULT_ERROR("file.sync");
    if (!fails && (!file->durable || file->fd < 0 || sync_data(file->fd) || (!file->regular && errno == EINVAL)))
        return true;
    int cause = errno;
    append_file_close(file);
    return error_set(err, ERROR_UNREACHABLE, "cannot sync %s: %s; the last lines may be lost and are sent again",
                     file->path, strerror(cause));
}
