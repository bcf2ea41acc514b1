#include "relay/queue/metrics.h"

#define PARTS_LOG2 5
#define PARTS (1 << PARTS_LOG2) /* buckets for each doubling */

static unsigned bucket_of(int64_t us)
{
    if (us < PARTS)
        return us < 0 ? 0 : (unsigned)us;
    unsigned log2 = 63 - (unsigned)__builtin_clzll((unsigned long long)us);
    unsigned bucket = (log2 - PARTS_LOG2 + 1) * PARTS + (unsigned)(us >> (log2 - PARTS_LOG2)) % PARTS;
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static int64_t bucket_end(unsigned bucket)
{
    if (bucket < PARTS)
        return bucket;
    unsigned shift = bucket / PARTS - 1;
    return ((int64_t)(PARTS + bucket % PARTS) << shift) + ((INT64_C(1) << shift) - 1);
}

void histogram_add(struct histogram *histogram, int64_t us)
{
    histogram->counts[bucket_of(us)]++;
    histogram->total++;
    if (us > histogram->max)
        histogram->max = us;
}

int64_t histogram_quantile(const struct histogram *histogram, double q)
{
    if (histogram->total == 0)
        return 0;
    uint64_t rank = (uint64_t)(q * (double)(histogram->total - 1)) + 1, seen = 0;
    unsigned i = 0;
    while ((seen += histogram->counts[i]) < rank)
        i++;
    return bucket_end(i) < histogram->max ? bucket_end(i) : histogram->max;
}
