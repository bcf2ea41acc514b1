#include "sinks/kafka/kafka_probes.h"

#include "relay/base/arena.h"

#include <stdlib.h>

#define FORGOTTEN_US (5 * SECOND_US)

static void probe_end(struct kafka_probe *probe)
{
    kafka_background_free(probe->aside, INSTANT_NEVER);
    free(probe->topic);
    *probe = (struct kafka_probe){0};
}

static enum reach probe_take(struct kafka_probe *probe)
{
    if (!kafka_background_done(probe->aside))
        return REACH_PENDING;
    enum reach reach = kafka_background_reach(probe->aside);
    probe_end(probe);
    return reach;
}

enum reach kafka_probes_ask(struct kafka_probes *probes, rd_kafka_t *rk, const char *topic, int wake_fd, instant_us now)
{
    struct kafka_probe *place = NULL;
    for (size_t i = 0; i < KAFKA_PROBES_MAX; i++) {
        struct kafka_probe *probe = &probes->entries[i];
        if (probe->aside && strcmp(probe->topic, topic) == 0)
            return probe_take(probe);
        /* Nobody came for the answer: that circuit is gone. */
        if (probe->aside && now - probe->started > FORGOTTEN_US && kafka_background_done(probe->aside))
            probe_end(probe);
        if (!probe->aside)
            place = probe;
    }
    struct kafka_background *aside = place ? kafka_background_metadata(rk, topic, wake_fd) : NULL;
    if (aside)
        *place = (struct kafka_probe){.aside = aside, .topic = memory_text(topic), .started = now};
    return REACH_PENDING;
}

size_t kafka_probes_leave(struct kafka_probes *probes, struct kafka_background *before[])
{
    size_t n = 0;
    for (size_t i = 0; i < KAFKA_PROBES_MAX; i++) {
        struct kafka_probe *probe = &probes->entries[i];
        if (probe->aside)
            before[n++] = probe->aside;
        free(probe->topic);
        *probe = (struct kafka_probe){0};
    }
    return n;
}
