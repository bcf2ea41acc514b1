#include "sinks/exec/exec_input.h"

#include "relay/base/fault_point.h"
#include "sinks/json_line.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUFFER_KEPT ((size_t)2 * 1024 * 1024)

static bool write_all(int fd, struct span bytes)
{
    for (off_t at = 0; (size_t)at < bytes.size;) {
        ssize_t written = pwrite(fd, bytes.data + at, bytes.size - (size_t)at, at);
        if (written == 0)
            errno = ENOSPC;
        if (written == 0 || (written < 0 && errno != EINTR))
            return false;
        at += written > 0 ? written : 0;
    }
    return true;
}

int exec_input_make(struct json_writer *buffer, const struct delivery *first)
{
    if (FAULT_ERROR("exec.input")) {
        errno = ENOMEM;
        return -1;
    }
    buffer->size = 0;
    for (const struct delivery *d = first; d; d = d->next)
        json_line_write(buffer, d);
    int fd = memfd_create("events", MFD_CLOEXEC);
    if (fd >= 0 && !write_all(fd, (struct span){buffer->data, buffer->size})) {
        int cause = errno;
        close(fd);
        errno = cause;
        fd = -1;
    }
    if (buffer->capacity > BUFFER_KEPT)
        json_writer_done(buffer);
    return fd;
}
