/* relay/bench/bench_config.h -- the configuration that a bench's relay runs with: one queue with default settings over
 * the bench's table, and one sink.
 *
 *   bench_config_open -> bench_config_of -> bench_config_close */
#pragma once

#include "relay/config/config.h"

struct bench_config;

struct bench_config_options {
    const char *config_path; /* NULL: none is given */
    const char *conninfo;    /* empty: that of the configuration */
    const char *sink;        /* one of the configuration's; NULL: `discard` */
    const char *destination; /* NULL: that of the queues which use the sink */
    const char *schema;      /* borrowed */
    int64_t connections;
};

/* NULL and *err on failure. */
struct bench_config *bench_config_open(const struct bench_config_options *options, struct error *err) MUST_CHECK;
void bench_config_close(struct bench_config *bench_config); /* NULL is a no-op */

const struct config *bench_config_of(const struct bench_config *bench_config);
