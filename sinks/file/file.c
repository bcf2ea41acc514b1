/* JSON Lines appended to a file. docs/sinks/file.md says what a line holds and what readers may rely on.
 *
 * Deliveries go waiting -> buffered (their line is in the buffer) -> written (in the file, not yet on disk) -> acked.
 * The buffer is written by one write(2) when it holds BUFFER_BYTES or nothing waits. A failure anywhere fails
 * everything behind it, which is what lets the sink promise SINK_KEEPS_KEY_ORDER. */
#include "relay/base/fault_point.h"
#include "sinks/delivery_queue.h"
#include "sinks/file/append_file.h"
#include "sinks/json_line.h"
#include "sinks/sink.h"

#include <stdlib.h>

#define BUFFER_BYTES ((size_t)1024 * 1024)
#define LOCK_RETRY_US MS_US /* another writer holds the lock for about a memcpy */

struct file_settings {
    char *path, *mode;
    bool sync;
};

struct file {
    struct sink sink;
    struct append_file out;
    struct json_writer buffer;
    size_t buffer_written; /* of the buffer, by a stream whose reader is slow */
    struct delivery_queue waiting, buffered, written;
    bool blocked;
    instant_us lock_retry_at;
};

static const struct setting file_settings[] = {
    {"path", SETTING_TEXT, offsetof(struct file_settings, path), .required = true,
     .help = "file to append to; - is standard output"},
    {"sync", SETTING_BOOL, offsetof(struct file_settings, sync), "true",
     .help = "fdatasync first; without, a power failure can lose delivered events"},
    {"mode", SETTING_TEXT, offsetof(struct file_settings, mode), "0640", .help = "octal permissions of a new file"},
    {.name = NULL}};

static bool mode_parse(const char *text, mode_t *ret_mode, struct error *err)
{
    char *end;
    unsigned long mode = strtoul(text, &end, 8);
    if (*text < '0' || *text > '7' || *end || mode > 0777 || (mode & 0600) != 0600)
        return error_set(err, ERROR_CONFIG,
                         "mode `%s` is not a file permission; write an octal number such as 0640 that lets the "
                         "owner read and write",
                         text);
    *ret_mode = (mode_t)mode;
    return true;
}

static bool file_check(const char *name, const void *settings, struct error *err)
{
    const struct file_settings *wanted = settings;
    struct append_file out;
    mode_t mode = 0640;
    bool good = !wanted->mode || mode_parse(wanted->mode, &mode, err);
    append_file_init(&out, wanted->path, mode, wanted->sync);
    return (good && append_file_check(&out, err)) || error_prefix(err, "sink %s", name);
}

static struct sink *file_open(const char *name, const void *settings, struct error *err)
{
    const struct file_settings *wanted = settings;
    mode_t mode = 0640;
    if (wanted->mode && !mode_parse(wanted->mode, &mode, err)) {
        error_prefix(err, "sink %s", name);
        return NULL;
    }
    struct file *file = memory_new(sizeof *file);
    file->sink.traits = SINK_KEEPS_KEY_ORDER;
    append_file_init(&file->out, wanted->path, mode, wanted->sync);
    if (!append_file_open(&file->out, err)) {
        error_prefix(err, "sink %s", name);
        free(file);
        return NULL;
    }
    return &file->sink;
}

static size_t file_submit(struct sink *sink, struct delivery *const ds[], size_t n, instant_us now)
{
    (void)now;
    struct file *file = (struct file *)sink;
    for (size_t i = 0; i < n; i++)
        delivery_queue_push(&file->waiting, ds[i]);
    return n;
}

static void file_prepare(struct sink *sink, struct pollset *ps)
{
    struct file *file = (struct file *)sink;
    if (!file->waiting.first && !file->buffered.first)
        return;
    if (!file->blocked || file->out.fd < 0)
        pollset_deadline(ps, 0);
    else if (file->out.regular)
        pollset_deadline(ps, file->lock_retry_at);
    else
        pollset_add(ps, file->out.fd, POLLOUT);
}

/* sink_data holds where the delivery's line ends in the buffer. */
static size_t line_end(const struct delivery *d)
{
    return (size_t)(uintptr_t)d->sink_data;
}

/* False when there is nothing to write. */
static bool fill_buffer(struct file *file)
{
    if (file->buffered.first)
        return true;
    file->buffer_written = file->buffer.size = 0;
    while (file->waiting.first && file->buffer.size < BUFFER_BYTES) {
        struct delivery *d = delivery_queue_pop(&file->waiting);
        json_line_write(&file->buffer, d);
        d->sink_data = (void *)(uintptr_t)file->buffer.size;
        delivery_queue_push(&file->buffered, d);
    }
    return file->buffered.first != NULL;
}

static enum append_result write_buffer(struct file *file, struct error *err)
{
    struct span rest = {file->buffer.data + file->buffer_written, file->buffer.size - file->buffer_written};
    size_t written;
    enum append_result result = append_file_write(&file->out, rest, &written, err);
    file->buffer_written += written;
    while (file->buffered.first && line_end(file->buffered.first) <= file->buffer_written)
        delivery_queue_push(&file->written, delivery_queue_pop(&file->buffered));
    return result;
}

static void resolve_all(struct delivery_queue *queue, enum verdict verdict, const struct error *cause)
{
    struct delivery *d;
    while ((d = delivery_queue_pop(queue)) != NULL)
        delivery_resolve(d, verdict, cause);
}

/* Nothing that waited behind a failure may arrive before it. */
static void fail_unwritten(struct file *file, struct error *cause)
{
    cause->kind = ERROR_UNREACHABLE;
    resolve_all(&file->buffered, VERDICT_RETRY, cause);
    resolve_all(&file->waiting, VERDICT_RETRY, cause);
}

static void settle_written(struct file *file)
{
    struct error err;
    if (!file->written.first)
        return;
    FAULT_POINT("file.written");
    if (append_file_sync(&file->out, &err)) {
        FAULT_POINT("file.synced");
        resolve_all(&file->written, VERDICT_ACKED, NULL);
        return;
    }
    resolve_all(&file->written, VERDICT_UNKNOWN, &err);
    fail_unwritten(file, &err);
}

static void file_progress(struct sink *sink, const struct pollset *ps, instant_us now)
{
    (void)ps;
    struct file *file = (struct file *)sink;
    struct error err;
    enum append_result result = APPEND_DONE;
    if (!file->waiting.first && !file->buffered.first)
        return;
    if (file->out.fd < 0 && !append_file_open(&file->out, &err))
        result = APPEND_FAILED;
    while (result == APPEND_DONE && fill_buffer(file))
        result = write_buffer(file, &err);
    settle_written(file);
    if (result == APPEND_FAILED)
        fail_unwritten(file, &err);
    file->blocked = result == APPEND_BLOCKED;
    file->lock_retry_at = now + LOCK_RETRY_US;
    if (!file->buffered.first && file->buffer.capacity > 2 * BUFFER_BYTES)
        json_writer_done(&file->buffer);
}

static enum reach file_probe(struct sink *sink, struct span destination, instant_us now, struct error *err)
{
    (void)destination, (void)now;
    struct file *file = (struct file *)sink;
    bool good = (file->out.fd >= 0 || append_file_open(&file->out, err)) && append_file_usable(&file->out, err);
    return good ? REACH_YES : REACH_NO;
}

static bool file_reopen(struct sink *sink, struct error *err)
{
    struct file *file = (struct file *)sink;
    /* A pipe whose reader is in the middle of our line is not a file that somebody rotated. */
    if (file->buffer_written > 0 && file->buffered.first)
        return true;
    return append_file_open(&file->out, err) || error_prefix(err, "sink %s", sink->name);
}

static void file_close(struct sink *sink)
{
    struct file *file = (struct file *)sink;
    file_progress(sink, NULL, 0);
    struct error err;
    error_set(&err, ERROR_UNREACHABLE, "%s was closed before it took the line", file->out.path);
    resolve_all(&file->buffered, VERDICT_UNKNOWN, &err);
    resolve_all(&file->waiting, VERDICT_UNKNOWN, &err);
    append_file_close(&file->out);
    json_writer_done(&file->buffer);
    free(file);
}

const struct sink_type sink_file = {
    .name = "file",
    .help = "appends JSON Lines to a file or to standard output",
    .settings = file_settings,
    .settings_size = sizeof(struct file_settings),
    .open = file_open,
    .submit = file_submit,
    .prepare = file_prepare,
    .progress = file_progress,
    .close = file_close,
    .probe = file_probe,
    .check = file_check,
    .reopen = file_reopen,
};
