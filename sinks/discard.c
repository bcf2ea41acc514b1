/* Takes everything and keeps nothing: for measuring the rest. */
#include "sinks/sink.h"

#include <stdlib.h>

static const struct setting discard_settings[] = {{.name = NULL}};

struct discard {
    struct sink sink;
    struct delivery *taken; /* acked by the next progress() */
};

static struct sink *discard_open(const char *name, const void *settings, struct error *err)
{
    (void)name, (void)settings, (void)err;
    struct discard *discard = memory_new(sizeof *discard);
    discard->sink.traits = SINK_KEEPS_KEY_ORDER;
    return &discard->sink;
}

static size_t discard_submit(struct sink *sink, struct delivery *const ds[], size_t n, instant_us now)
{
    (void)now;
    struct discard *discard = (struct discard *)sink;
    for (size_t i = 0; i < n; i++) {
        ds[i]->next = discard->taken;
        discard->taken = ds[i];
    }
    return n;
}

static void discard_prepare(struct sink *sink, struct pollset *ps)
{
    if (((struct discard *)sink)->taken)
        pollset_deadline(ps, 0);
}

static void discard_progress(struct sink *sink, const struct pollset *ps, instant_us now)
{
    (void)ps, (void)now;
    struct discard *discard = (struct discard *)sink;
    for (struct delivery *d = discard->taken, *next; d; d = next) {
        next = d->next;
        delivery_resolve(d, VERDICT_ACKED, NULL);
    }
    discard->taken = NULL;
}

static void discard_close(struct sink *sink)
{
    discard_progress(sink, NULL, 0);
    free(sink);
}

const struct sink_type sink_discard = {
    .name = "discard",
    .help = "takes everything and keeps nothing, for measurements",
    .settings = discard_settings,
    .settings_size = 1,
    .open = discard_open,
    .submit = discard_submit,
    .prepare = discard_prepare,
    .progress = discard_progress,
    .close = discard_close,
};
