#include "relay/base/descriptor_limit.h"

/* The limit itself belongs to the whole process, and so does what it was. */
static rlim_t soft_before = RLIM_INFINITY;

void descriptor_limit_raise(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit); /* fails for wrong arguments only */
    soft_before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

struct rlimit descriptor_limit_of_children(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur > soft_before)
        limit.rlim_cur = soft_before;
    return limit;
}
