/* relay/base/lesser.h -- of two counts. For times there is instant_min() in relay/base/clock.h. */
#ifndef RELAY_BASE_LESSER_H
#define RELAY_BASE_LESSER_H

#include <stdint.h>

static inline int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
