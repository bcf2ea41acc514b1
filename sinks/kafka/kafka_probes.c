#include "sinks/kafka/kafka_probes.h"

#include "relay/base/arena.h"

#include <stdlib.h>

#define FORGOTTEN_US (5 * SECOND_US)

static void probe_end(struct kafka_probe *probe)
{
    kafka_background_free(probe->background, INSTANT_NEVER);
    free(probe->topic);
    *probe = (struct kafka_probe){0};
}

static enum reach probe_take(struct kafka_probe *probe)
{
    if (!kafka_background_done(probe->background))
        return REACH_PENDING;
    enum reach reach = kafka_background_reach(probe->background);
    probe_end(probe);
    return reach;
}

enum reach kafka_probes_ask(struct kafka_probes *probes, rd_kafka_t *rk, const char *topic, int wake_fd, instant_us now)
{
    struct kafka_probe *place = NULL;
    for (size_t i = 0; i < KAFKA_PROBES_MAX; i++) {
        struct kafka_probe *probe = &probes->entries[i];
        if (probe->background && strcmp(probe->topic, topic) == 0)
            return probe_take(probe);
        /* Nobody came for the answer: that circuit is gone. */
        if (probe->background && now - probe->started > FORGOTTEN_US && kafka_background_done(probe->background))
            probe_end(probe);
        if (!probe->background)
            place = probe;
    }
    struct kafka_background *background = place ? kafka_background_metadata(rk, topic, wake_fd) : NULL;
    if (background)
        *place = (struct kafka_probe){.background = background, .topic = memory_text(topic), .started = now};
    return REACH_PENDING;
}

size_t kafka_probes_leave(struct kafka_probes *probes, struct kafka_background *before[])
{
    size_t n = 0;
    for (size_t i = 0; i < KAFKA_PROBES_MAX; i++) {
        struct kafka_probe *probe = &probes->entries[i];
        if (probe->background)
            before[n++] = probe->background;
        free(probe->topic);
        *probe = (struct kafka_probe){0};
    }
    return n;
}
