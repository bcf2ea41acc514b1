/* A command for each event, or for some events together. docs/sinks/exec.md says what a command may rely on.
 *
 * DESIGN. exec_command.c finds the program, exec_input.c makes what it reads, exec_process.c runs it, exec_guard.c ends
 * it with the relay, exec_verdict.c reads its exit code. Here: which events it gets and what its end means for them.
 *
 * A delivery waits, then is a member of a job: one command under way. The rest of a run that did not fit waits in the
 * job for the members in front of it. When a command for several events fails, nobody knows which one was bad: its
 * members go back to the front and are run one at a time, and each of those has its own verdict.
 *
 * Standard input is a file in memory, whole before the command starts: who reads slowly or in part breaks nothing. */
#include "relay/base/fault_point.h"
#include "sinks/delivery_queue.h"
#include "sinks/exec/exec_command.h"
#include "sinks/exec/exec_input.h"
#include "sinks/exec/exec_verdict.h"
#include "sinks/sink.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define BATCH_BYTES_MAX ((size_t)1024 * 1024) /* of payloads; a single event may be larger */
#define SAID_MAX 300                          /* bytes of standard error in a cause */
#define CLOSE_TERM_US (500 * MS_US)
#define CLOSE_KILL_US (300 * MS_US)

struct job {
    struct exec_process process;
    struct delivery_queue members, rest;
    size_t count; /* of members */
    bool timed_out;
    bool called_back; /* killed, as the claim of a member is lost */
    instant_us due;   /* when the next signal is; INSTANT_NEVER: it got the last one */
};

struct exec {
    struct sink sink;
    const struct exec_settings *settings;
    struct exec_command *command;
    struct exec_guard *guard;
    struct exec_codes codes;
    struct job *jobs; /* settings->processes of them */
    size_t job_count, running;
    struct delivery_queue waiting;
    size_t waiting_count;
    bool any_cancelled; /* of those that wait, perhaps */
    struct json_writer input;
};

/* What sink_data holds. */
enum mark {
    MARK_NONE,
    MARK_ALONE,    /* its command failed with others: now it goes alone */
    MARK_CANCELLED /* its claim is lost */
};

static enum mark mark_of(const struct delivery *d)
{
    return (enum mark)(uintptr_t)d->sink_data;
}

static void set_mark(struct delivery *d, enum mark mark)
{
    d->sink_data = (void *)(uintptr_t)mark;
}

static const char *path_of(const struct exec *exec)
{
    return exec_command_program(exec->command)->path;
}

/* ---- opening ---- */

static void exec_free(struct exec *exec)
{
    exec_command_close(exec->command);
    exec_guard_free(exec->guard);
    json_writer_done(&exec->input);
    free(exec->jobs);
    free(exec);
}

static struct sink *exec_open(const char *name, const void *settings, struct error *err)
{
    (void)name;
    struct exec *exec = memory_new(sizeof *exec);
    exec->settings = settings;
    exec->job_count = (size_t)exec->settings->processes;
    exec->jobs = memory_array(exec->job_count, sizeof *exec->jobs);
    exec->sink.keys_max = exec->job_count * (size_t)exec->settings->batch;
    exec->sink.traits = exec->settings->batch > 1 ? SINK_TAKES_RUNS : 0;
    if (exec_codes_init(&exec->codes, &exec->settings->exit_codes, err))
        exec->command = exec_command_open(exec->settings, err);
    if (exec->command)
        exec->guard = exec_guard_new(exec->job_count, err);
    if (!exec->guard) {
        exec_free(exec);
        return NULL;
    }
    for (size_t i = 0; i < exec->job_count; i++)
        exec->jobs[i].process =
            (struct exec_process){.pidfd = -1, .output = -1, .errors = -1, .group = exec_guard_group(exec->guard, i)};
    return &exec->sink;
}

/* ---- which events go together ---- */

static void wait_last(struct exec *exec, struct delivery *d)
{
    delivery_queue_push(&exec->waiting, d);
    exec->waiting_count++;
}

static void wait_first(struct exec *exec, struct delivery_queue *queue)
{
    if (!queue->first)
        return;
    for (const struct delivery *d = queue->first; d; d = d->next) {
        exec->waiting_count++;
        exec->any_cancelled |= mark_of(d) == MARK_CANCELLED;
    }
    queue->last->next = exec->waiting.first;
    if (!exec->waiting.first)
        exec->waiting.last = queue->last;
    exec->waiting.first = queue->first;
    *queue = (struct delivery_queue){0};
}

static struct delivery *take_waiting(struct exec *exec)
{
    exec->waiting_count--;
    return delivery_queue_pop(&exec->waiting);
}

/* Whole runs: what is behind a cut could not be told from what is behind a failure. */
static size_t exec_submit(struct sink *sink, struct delivery *const ds[], size_t n, instant_us now)
{
    (void)now;
    struct exec *exec = (struct exec *)sink;
    size_t most = (exec->job_count - exec->running) * (size_t)exec->settings->batch, taken = 0;
    while (taken < n && (exec->waiting_count < most || (taken > 0 && ds[taken]->joined))) {
        set_mark(ds[taken], MARK_NONE);
        wait_last(exec, ds[taken++]);
    }
    return taken;
}

static void drop_cancelled(struct exec *exec)
{
    struct delivery_queue waiting_again = {0};
    while (exec->any_cancelled && exec->waiting.first) {
        struct delivery *d = take_waiting(exec);
        if (mark_of(d) == MARK_CANCELLED)
            delivery_fail(d, VERDICT_RETRY, ERROR_LOST_CLAIM, "%s: not run, as the claim is lost", path_of(exec));
        else
            delivery_queue_push(&waiting_again, d);
    }
    exec->any_cancelled = false;
    wait_first(exec, &waiting_again);
}

/* May the first that waits go with those that the job has? */
static bool fits(const struct exec *exec, const struct job *job, size_t bytes)
{
    const struct delivery *d = exec->waiting.first;
    return d && job->count < (size_t)exec->settings->batch && bytes + d->event->payload.size <= BATCH_BYTES_MAX &&
           mark_of(job->members.first) == MARK_NONE && mark_of(d) == MARK_NONE;
}

/* False when nothing waits. */
static bool gather(struct exec *exec, struct job *job)
{
    size_t bytes = 0;
    if (!exec->waiting.first)
        return false;
    job->members = job->rest = (struct delivery_queue){0};
    job->count = 0;
    do {
        struct delivery *d = take_waiting(exec);
        bytes += d->event->payload.size;
        delivery_queue_push(&job->members, d);
        job->count++;
    } while (fits(exec, job, bytes));
    while (exec->waiting.first && exec->waiting.first->joined)
        delivery_queue_push(&job->rest, take_waiting(exec));
    return true;
}

/* ---- starting ---- */

static void resolve_all(struct delivery_queue *queue, enum verdict verdict, const struct error *cause)
{
    struct delivery *d;
    while ((d = delivery_queue_pop(queue)))
        delivery_resolve(d, verdict, cause);
}

/* What stands behind a failed event of its key. */
static void fail_rest(const struct exec *exec, struct job *job)
{
    struct error cause;
    error_set(&cause, ERROR_REFUSED, "%s: not run, as the event before it failed", path_of(exec));
    resolve_all(&job->rest, VERDICT_RETRY, &cause);
}

static void not_started(struct exec *exec, struct job *job, int cause)
{
    struct exec_meaning meaning = exec_verdict_errno(cause);
    struct error err;
    error_set(&err, meaning.kind, "cannot run %s: %s%s", path_of(exec), strerror(cause), meaning.reason);
    resolve_all(&job->members, meaning.verdict, &err);
    fail_rest(exec, job);
}

static void start(struct exec *exec, struct job *job, instant_us now)
{
    struct error err;
    int cause = 0;
    job->process.response = job->count == 1 ? job->members.first->response : NULL;
    if (!exec_guard_watch(exec->guard, &err)) {
        resolve_all(&job->members, VERDICT_RETRY, &err);
        fail_rest(exec, job);
        return;
    }
    char *const *environment = exec_command_environment(exec->command, job->members.first, job->count);
    int input = exec_input_make(&exec->input, job->members.first);
    bool started = false;
    if (input >= 0) {
        started = exec_process_start(&job->process, exec_command_program(exec->command), input, environment, &cause);
        close(input);
    } else {
        cause = errno;
    }
    if (!started) {
        not_started(exec, job, cause);
        return;
    }
    FAULT_POINT("exec.started");
    job->timed_out = job->called_back = false;
    job->due = now + exec->settings->timeout_us;
    exec->running++;
}

/* ---- the end of a command ---- */

struct outcome {
    enum verdict verdict;
    struct error cause;
};

static struct outcome outcome_of(const struct exec *exec, const struct job *job, struct exec_end end)
{
    char said[SAID_MAX] = "";
    const char *path = path_of(exec);
    struct outcome outcome = {.verdict = VERDICT_UNKNOWN};
    if (exec->settings->log_stderr)
        exec_process_last_line(&job->process, said, sizeof said);
    const char *colon = said[0] ? ": " : "";
    if (job->timed_out) {
        error_set(&outcome.cause, ERROR_TIMEOUT, "%s: not done within %lld ms%s%s", path,
                  (long long)(exec->settings->timeout_us / MS_US), colon, said);
    } else if (end.signal && job->called_back) {
        error_set(&outcome.cause, ERROR_LOST_CLAIM, "%s: killed, as the claim is lost", path);
    } else if (end.signal) {
        error_set(&outcome.cause, ERROR_REFUSED, "%s: ended by signal %d (%s)%s%s", path, end.signal,
                  strsignal(end.signal), colon, said);
    } else {
        const struct exec_meaning *meaning = exec->codes.of[end.code];
        outcome.verdict = meaning->verdict;
        error_set(&outcome.cause, meaning->kind, "%s: exit code %d%s%s%s", path, end.code, meaning->reason, colon,
                  said);
    }
    return outcome;
}

static void acked(struct exec *exec, struct job *job)
{
    resolve_all(&job->members, VERDICT_ACKED, NULL);
    if (job->rest.first)
        job->rest.first->joined = false; /* what it had to wait for has arrived */
    wait_first(exec, &job->rest);
}

/* The claims of some may be lost; of the others, who is to blame is found out one by one. */
static void failed_together(struct exec *exec, struct job *job, const struct outcome *outcome)
{
    struct delivery_queue again = {0};
    struct delivery *d;
    while ((d = delivery_queue_pop(&job->members))) {
        if (mark_of(d) == MARK_CANCELLED) {
            delivery_resolve(d, VERDICT_UNKNOWN, &outcome->cause);
            continue;
        }
        set_mark(d, MARK_ALONE);
        delivery_queue_push(&again, d);
    }
    wait_first(exec, &job->rest);
    wait_first(exec, &again);
}

static void finish(struct exec *exec, struct job *job, struct exec_end end)
{
    exec->running--;
    FAULT_POINT("exec.ended");
    struct outcome outcome = outcome_of(exec, job, end);
    if (outcome.verdict == VERDICT_ACKED) {
        acked(exec, job);
    } else if (job->count > 1) {
        failed_together(exec, job, &outcome);
    } else {
        resolve_all(&job->members, outcome.verdict, &outcome.cause);
        fail_rest(exec, job);
    }
}

/* SIGTERM, and after a while SIGKILL; then there is nothing but to wait. */
static void signal_late(struct exec *exec, struct job *job, instant_us now)
{
    exec_process_signal(&job->process, job->timed_out ? SIGKILL : SIGTERM);
    job->due = job->timed_out ? INSTANT_NEVER : now + exec->settings->kill_after_us;
    job->timed_out = true;
}

/* ---- the loop ---- */

static bool is_running(const struct job *job)
{
    return job->process.pid > 0;
}

static void exec_prepare(struct sink *sink, struct pollset *ps)
{
    const struct exec *exec = (const struct exec *)sink;
    if (exec->any_cancelled || (exec->waiting.first && exec->running < exec->job_count))
        pollset_deadline(ps, 0);
    for (size_t i = 0; exec->running > 0 && i < exec->job_count; i++) {
        const struct job *job = &exec->jobs[i];
        if (!is_running(job))
            continue;
        exec_process_prepare(&job->process, ps);
        pollset_deadline(ps, job->due);
    }
}

static void exec_progress(struct sink *sink, const struct pollset *ps, instant_us now)
{
    struct exec *exec = (struct exec *)sink;
    struct exec_end end;
    for (size_t i = 0; exec->running > 0 && i < exec->job_count; i++) {
        struct job *job = &exec->jobs[i];
        if (!is_running(job))
            continue;
        if (exec_process_ended(&job->process, ps, &end))
            finish(exec, job, end);
        else if (now >= job->due)
            signal_late(exec, job, now);
    }
    drop_cancelled(exec);
    for (size_t i = 0; exec->waiting.first && i < exec->job_count; i++)
        while (!is_running(&exec->jobs[i]) && gather(exec, &exec->jobs[i]))
            start(exec, &exec->jobs[i], now);
}

static bool has_member(const struct job *job, const struct delivery *wanted)
{
    const struct delivery *d = job->members.first;
    while (d && d != wanted)
        d = d->next;
    return d != NULL;
}

static void exec_cancel(struct sink *sink, struct delivery *d)
{
    struct exec *exec = (struct exec *)sink;
    set_mark(d, MARK_CANCELLED);
    exec->any_cancelled = true;
    for (size_t i = 0; i < exec->job_count; i++) {
        struct job *job = &exec->jobs[i];
        if (!is_running(job) || !has_member(job, d))
            continue;
        exec_process_signal(&job->process, SIGKILL);
        job->due = INSTANT_NEVER;
        job->called_back = true;
    }
}

static enum reach exec_probe(struct sink *sink, struct span destination, instant_us now, struct error *err)
{
    (void)destination, (void)now;
    const char *path = path_of((struct exec *)sink);
    bool found = access(path, X_OK) == 0;
    if (!found)
        error_set(err, ERROR_UNREACHABLE, "cannot run %s: %s", path, strerror(errno));
    return found ? REACH_YES : REACH_NO;
}

/* Until all have ended, or `until`. */
static void await_ends(struct exec *exec, instant_us until)
{
    struct exec_end end;
    for (size_t i = 0; i < exec->job_count; i++) {
        struct exec_process *process = &exec->jobs[i].process;
        while (process->pid > 0 && !exec_process_ended(process, NULL, &end)) {
            instant_us now = clock_now();
            if (now >= until)
                return;
            struct pollfd due = {.fd = process->pidfd, .events = POLLIN};
            poll(&due, 1, (int)((until - now) / MS_US) + 1);
        }
    }
}

static void exec_close(struct sink *sink)
{
    struct exec *exec = (struct exec *)sink;
    struct error cause;
    for (size_t i = 0; i < exec->job_count; i++)
        exec_process_signal(&exec->jobs[i].process, SIGTERM);
    await_ends(exec, clock_now() + CLOSE_TERM_US);
    for (size_t i = 0; i < exec->job_count; i++)
        exec_process_signal(&exec->jobs[i].process, SIGKILL);
    await_ends(exec, clock_now() + CLOSE_KILL_US);
    error_set(&cause, ERROR_UNREACHABLE, "%s: closed before it was done", path_of(exec));
    for (size_t i = 0; i < exec->job_count; i++) {
        exec_process_done(&exec->jobs[i].process);
        resolve_all(&exec->jobs[i].members, VERDICT_UNKNOWN, &cause);
        resolve_all(&exec->jobs[i].rest, VERDICT_UNKNOWN, &cause);
    }
    resolve_all(&exec->waiting, VERDICT_UNKNOWN, &cause);
    exec_free(exec);
}

const struct sink_type sink_exec = {
    .name = "exec",
    .help = "runs a command an event, with JSON on its standard input",
    .run = {.events_min = 8, .events_max = 64, .bytes_max = (size_t)256 * 1024},
    .settings = exec_settings_table,
    .settings_size = sizeof(struct exec_settings),
    .response_max = exec_settings_response_max,
    .open = exec_open,
    .submit = exec_submit,
    .prepare = exec_prepare,
    .progress = exec_progress,
    .close = exec_close,
    .probe = exec_probe,
    .cancel = exec_cancel,
};
