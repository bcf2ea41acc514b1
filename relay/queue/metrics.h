/* relay/queue/metrics.h -- what one queue has done, and how long events waited. */
#pragma once

#include <stdint.h>

/* Microseconds in buckets that grow by a thirty-second: exact to 3.2 %, up to 200 days. */
#define HISTOGRAM_BUCKETS 1280

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t total;
    int64_t max;
};

/* Written by everybody: who does something counts it. */
struct metrics {
    uint64_t claims, empty_claims, delivered, retried, parked, buried, released, lost, missing, late;
    uint64_t settled;        /* delivered events that are written down: their rows are gone */
    uint64_t scheduled;      /* events that were inserted for schedules */
    uint64_t delayed;        /* keys that were found to wait for the time of an event */
    uint64_t leases_lost;    /* of events under way: somebody else took them over */
    uint64_t purged;         /* dead letters */
    uint64_t removed;        /* days of the archive, and steps through its default partition */
    struct histogram lag_us; /* insert to ack: created_at to the verdict, by the wall clock */
};

void histogram_add(struct histogram *histogram, int64_t us);
int64_t histogram_quantile(const struct histogram *histogram, double q); /* upper end of its bucket; 0 when empty */
