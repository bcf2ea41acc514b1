/* relay/base/lesser.h -- of two counts. For times there is instant_min() in relay/base/clock.h. */
#pragma once

#include <stdint.h>

static inline int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
