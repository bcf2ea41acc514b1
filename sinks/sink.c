#include "sinks/sink.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const struct sink_type *sink_type_find(const char *name)
{
    for (size_t i = 0; sink_types[i]; i++)
        if (strcmp(sink_types[i]->name, name) == 0)
            return sink_types[i];
    return NULL;
}

struct sink *sink_open(const struct sink_type *type, const char *name, const void *settings, struct error *err)
{
    struct sink *sink = type->open(name, settings, err);
    if (!sink)
        return NULL;
    sink->type = type;
    sink->name = name;
    sink->in_flight = 0;
    sink->resolved = NULL;
    sink->resolved_end = &sink->resolved;
    return sink;
}

bool sink_check(const struct sink_type *type, const char *name, const void *settings, struct error *err)
{
    if (type->check)
        return type->check(name, settings, err);
    struct sink *sink = sink_open(type, name, settings, err);
    sink_close(sink);
    return sink != NULL;
}

size_t sink_submit(struct sink *sink, struct delivery *const ds[], size_t n, instant_us now)
{
    for (size_t i = 0; i < n; i++) {
        assert(ds[i]->verdict == VERDICT_NONE && "a delivery is submitted once");
        ds[i]->sink = sink;
    }
    size_t taken = sink->type->submit(sink, ds, n, now);
    assert(taken <= n);
    for (size_t i = taken; i < n; i++)
        ds[i]->sink = NULL;
    sink->in_flight += taken;
    return taken;
}

void sink_prepare(struct sink *sink, struct pollset *ps)
{
    sink->type->prepare(sink, ps);
}

void sink_progress(struct sink *sink, const struct pollset *ps, instant_us now)
{
    sink->type->progress(sink, ps, now);
}

enum reach sink_probe(struct sink *sink, struct span destination, instant_us now, struct error *err)
{
    return sink->type->probe ? sink->type->probe(sink, destination, now, err) : REACH_YES;
}

void sink_cancel(struct delivery *d)
{
    if (d->sink && d->sink->type->cancel && d->verdict == VERDICT_NONE)
        d->sink->type->cancel(d->sink, d);
}

bool sink_reopen(struct sink *sink, struct error *err)
{
    return !sink->type->reopen || sink->type->reopen(sink, err);
}

void sink_close(struct sink *sink)
{
    if (sink)
        sink->type->close(sink);
}

void delivery_resolve(struct delivery *d, enum verdict verdict, const struct error *cause)
{
    if (d->verdict != VERDICT_NONE || verdict == VERDICT_NONE || !d->sink ||
        (verdict == VERDICT_ACKED) == (cause != NULL)) {
        fprintf(stderr, "pgcourier: bug: event %lld given verdict %s after %s\n", (long long)d->event->id,
                verdict_name(verdict), verdict_name(d->verdict));
        abort();
    }
    d->verdict = verdict;
    if (cause) {
        d->cause = arena_alloc(d->arena, sizeof *d->cause);
        *d->cause = *cause;
    }
    struct sink *sink = d->sink;
    sink->in_flight--;
    d->next = NULL;
    *sink->resolved_end = d;
    sink->resolved_end = &d->next;
}

struct delivery *sink_take_resolved(struct sink *sink)
{
    struct delivery *d = sink->resolved;
    if (!d)
        return NULL;
    sink->resolved = d->next;
    if (!sink->resolved)
        sink->resolved_end = &sink->resolved;
    return d;
}

void delivery_fail(struct delivery *d, enum verdict verdict, enum error_kind kind, const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct error cause;
    error_set(&cause, kind, "%s", text);
    delivery_resolve(d, verdict, &cause);
}

const char *verdict_name(enum verdict verdict)
{
    static const char *const names[] = {
        [VERDICT_NONE] = "none",         [VERDICT_ACKED] = "acked",     [VERDICT_RETRY] = "retry",
        [VERDICT_REJECTED] = "rejected", [VERDICT_UNKNOWN] = "unknown",
    };
    return (size_t)verdict < sizeof names / sizeof names[0] ? names[verdict] : "?";
}
