/* Every destination pgcourier knows. To add one: one file, one declaration, one line. */
#include "sinks/sink.h"

extern const struct sink_type sink_kafka;
extern const struct sink_type sink_redis;
extern const struct sink_type sink_http;
extern const struct sink_type sink_exec;
extern const struct sink_type sink_file;
extern const struct sink_type sink_discard;

const struct sink_type *const sink_types[] = {
    &sink_kafka, &sink_redis, &sink_http, &sink_exec, &sink_file, &sink_discard, NULL,
};
