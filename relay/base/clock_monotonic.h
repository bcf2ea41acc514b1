/* relay/base/clock_monotonic.h -- instants for what the C library cannot wait for on our clock. */
#pragma once

#include "relay/base/clock.h"

#include <time.h>

/* `at` on CLOCK_MONOTONIC, unless the machine is suspended until then. */
struct timespec clock_monotonic_at(instant_us at);
