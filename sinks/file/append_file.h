/* sinks/file/append_file.h -- a file that several processes append whole lines to.
 *
 *   append_file_init -> append_file_open -> (append_file_write* -> append_file_sync)* -> append_file_close
 *
 * A regular file is written under flock(2): one O_APPEND write a call, and what a full disk cuts in the middle of a
 * line is truncated again. A line that a killed process left torn is ended first, so it never swallows the next one. A
 * pipe, terminal or "-" is written as far as its reader lets us, without blocking, and belongs to one writer. Whoever
 * wrote to a named pipe before may have left a torn line in it, which nobody can see: the first byte for it is a
 * newline. */
#pragma once

#include "relay/base/error.h"
#include "relay/base/span.h"

#include <sys/types.h>

struct append_file {
    const char *path; /* "-" is standard output; borrowed */
    mode_t mode;      /* of a file that is created, before the umask */
    bool durable;     /* append_file_sync() means it */
    int fd;           /* -1 = not open */
    bool regular;
    bool mid_line; /* of a stream: our last byte was not a newline */
    bool torn;     /* of a stream: a line may have been given up where the next one begins */
    bool begun;    /* of a stream: what stands there is ours, and known */
};

enum append_result {
    APPEND_DONE,    /* all of it */
    APPEND_BLOCKED, /* the reader is slow, or another writer has the lock */
    APPEND_FAILED   /* *err says why */
};

/* Nothing is opened yet. */
void append_file_init(struct append_file *file, const char *path, mode_t mode, bool durable);

/* Opens, creating the file if need be. On failure what was open stays open and *err is ERROR_CONFIG or
 * ERROR_PERMISSION, one line that names the path. */
bool append_file_open(struct append_file *file, struct error *err) MUST_CHECK;

/* What append_file_open() would say, without creating or opening anything. */
bool append_file_check(const struct append_file *file, struct error *err) MUST_CHECK;

/* Whole lines. Whatever the result, the first *ret_written bytes are in the file; in a regular file they end with a
 * line unless truncating failed too. After BLOCKED call again with the rest; after FAILED the rest never arrived. */
enum append_result append_file_write(struct append_file *file, struct span lines, size_t *ret_written,
                                     struct error *err) MUST_CHECK;

/* On failure nobody knows what the disk holds, and the kernel has forgotten that it failed: the file is closed. */
bool append_file_sync(struct append_file *file, struct error *err) MUST_CHECK;

/* Could a line be written now to what is open, as far as one can tell without writing? */
bool append_file_usable(const struct append_file *file, struct error *err) MUST_CHECK;

void append_file_close(struct append_file *file);
