/* tests/unit/stage/fake_sink.h -- the engine with a sink that follows a script.
 *
 *   set_up -> stage_event* -> turn -> ack | fails -> turn -> ... -> tear_down */
#ifndef TESTS_UNIT_FAKE_SINK_H
#define TESTS_UNIT_FAKE_SINK_H

#include "relay/deliver/deliver.h"
#include "relay/deliver/outlet.h"
#include "relay/route/route.h"
#include "tests/unit/stage/hand_made.h"

#include <stdlib.h>

#define TAKEN_MAX 128
#define RUN_EVENTS_MAX ((size_t)64)
#define RUN_BYTES_MAX ((size_t)1000)

struct fake {
    struct sink sink;
    struct delivery *taken[TAKEN_MAX];
    size_t taken_count;
    int64_t sent[TAKEN_MAX]; /* ids in the order of their submission */
    size_t sent_count;
    size_t room; /* what one submit() may take */
    enum reach reach;
    const char *unreached, *cause; /* of REACH_NO, of a failure */
    struct {
        struct delivery *d;
        enum verdict verdict;
        enum error_kind kind;
        int64_t retry_after_us;
    } script[TAKEN_MAX];
    size_t script_count;
};

static inline struct sink *fake_open(const char *name, const void *settings, struct error *err)
{
    (void)name;
    (void)settings;
    (void)err;
    struct fake *fake = memory_new(sizeof *fake);
    fake->room = TAKEN_MAX;
    fake->unreached = "nobody there";
    fake->cause = "scripted";
    return &fake->sink;
}

static inline size_t fake_submit(struct sink *sink, struct delivery *const ds[], size_t n, instant_us now)
{
    (void)now;
    struct fake *fake = (struct fake *)sink;
    size_t taken = n < fake->room ? n : fake->room;
    for (size_t i = 0; i < taken; i++) {
        fake->taken[fake->taken_count++] = ds[i];
        fake->sent[fake->sent_count++] = ds[i]->event->id;
    }
    return taken;
}

static inline void fake_prepare(struct sink *sink, struct pollset *ps)
{
    (void)sink;
    (void)ps;
}

static inline void fake_progress(struct sink *sink, const struct pollset *ps, instant_us now)
{
    (void)ps;
    (void)now;
    struct fake *fake = (struct fake *)sink;
    for (size_t i = 0; i < fake->script_count; i++) {
        struct delivery *d = fake->script[i].d;
        d->retry_after_us = fake->script[i].retry_after_us;
        if (fake->script[i].verdict == VERDICT_ACKED)
            delivery_resolve(d, VERDICT_ACKED, NULL);
        else
            delivery_fail(d, fake->script[i].verdict, fake->script[i].kind, "%s", fake->cause);
    }
    fake->script_count = 0;
}

static inline void fake_close(struct sink *sink)
{
    struct fake *fake = (struct fake *)sink;
    for (size_t i = 0; i < fake->taken_count; i++)
        delivery_fail(fake->taken[i], VERDICT_UNKNOWN, ERROR_UNREACHABLE, "closed");
    free(fake);
}

static inline enum reach fake_probe(struct sink *sink, struct span destination, instant_us now, struct error *err)
{
    (void)destination;
    (void)now;
    const struct fake *fake = (struct fake *)sink;
    if (fake->reach == REACH_NO)
        error_set(err, ERROR_UNREACHABLE, "%s", fake->unreached);
    return fake->reach;
}

static const struct sink_type fake_type = {.name = "fake",
                                           .run = {8, RUN_EVENTS_MAX, RUN_BYTES_MAX},
                                           .open = fake_open,
                                           .submit = fake_submit,
                                           .prepare = fake_prepare,
                                           .progress = fake_progress,
                                           .close = fake_close,
                                           .probe = fake_probe};

static struct stage stage;
static struct sink_config sink_config;
static struct outlet *outlet;
static struct fake *fake;
static struct batch *batch;
static instant_us now;

static inline void set_up_to(const char *destination)
{
    struct error err;
    static char name[] = "fake";
    stage_init(&stage, destination);
    sink_config = (struct sink_config){.name = name, .type = &fake_type, .max_in_flight = 16};
    outlet = outlet_open(&sink_config, &stage.log, 1, &err);
    ck_assert_ptr_nonnull(outlet);
    stage.queue.outlet = outlet;
    fake = (struct fake *)outlet->sink;
    now = SECOND_US;
    batch = stage_batch(&stage);
}

static inline void set_up(void)
{
    set_up_to("there");
}

static inline void tear_down(void)
{
    outlet_close(outlet);
    stage_done(&stage);
}

/* One turn of the relay, a millisecond later. */
static inline void turn(void)
{
    now += MS_US;
    route_claimed(&stage.queue);
    if (outlet->stopping)
        deliver_stop_all(outlet, now);
    deliver_ready(outlet, NULL, now, now);
}

static inline size_t taken_at(int64_t id)
{
    size_t i = 0;
    while (i < fake->taken_count && fake->taken[i]->event->id != id)
        i++;
    return i;
}

static inline bool in_flight(int64_t id)
{
    return taken_at(id) < fake->taken_count;
}

static inline void resolve_with(int64_t id, enum verdict verdict, enum error_kind kind, int64_t retry_after_us)
{
    size_t at = taken_at(id);
    ck_assert_msg(at < fake->taken_count, "event %d is not in flight", (int)id);
    fake->script[fake->script_count].d = fake->taken[at];
    fake->script[fake->script_count].verdict = verdict;
    fake->script[fake->script_count].kind = kind;
    fake->script[fake->script_count++].retry_after_us = retry_after_us;
    for (fake->taken_count--; at < fake->taken_count; at++)
        fake->taken[at] = fake->taken[at + 1];
}

static inline void ack(int64_t id)
{
    resolve_with(id, VERDICT_ACKED, ERROR_NONE, 0);
}

static inline void fails(int64_t id, enum verdict verdict, enum error_kind kind)
{
    resolve_with(id, verdict, kind, 0);
}

#define assert_sent(...)                                                                                               \
    do {                                                                                                               \
        const int64_t expected[] = {__VA_ARGS__};                                                                      \
        ck_assert_uint_eq(fake->sent_count, sizeof expected / sizeof expected[0]);                                     \
        for (size_t sent_at = 0; sent_at < fake->sent_count; sent_at++)                                                \
            ck_assert_int_eq(fake->sent[sent_at], expected[sent_at]);                                                  \
    } while (0)

#endif
