/* relay/base/fault_point.h -- named places where a test makes the process fail.
 *
 *     PGCOURIER_FAULT=claim.arrived:2:kill
 *
 * The second time that the relay comes to the point `claim.arrived`, it is killed. Several such faults are separated
 * by commas. Actions:
 *
 *     kill    SIGKILL
 *     stop    SIGSTOP; whoever watches continues it
 *     drop    every connection of the process is shut down, to the database and to sinks
 *     error   the step fails; only where the point is asked, FAULT_ERROR
 *     errors  so does it each time from then on
 *
 * What was done is appended, one JSON line a fault, to the file PGCOURIER_FAULT_LOG before it is done; `at` is
 * clock_now(). All of this exists in builds with the option PGCOURIER_FAULT_POINTS only; in others a point is nothing
 * at all. */
#pragma once

#include <stdbool.h>

#ifdef PGCOURIER_FAULT_POINTS

struct fault_place {
    const char *name;
    bool may_fail; /* FAULT_ERROR */
};

/* Reads PGCOURIER_FAULT and opens the log. What could never happen as it is written there ends the process with 64 and
 * a line that says why: a test would pass without its fault. Happens at the first point, when nobody has called it. */
void fault_point_start(void);

/* True when the caller's step is to fail. */
bool fault_point(const struct fault_place *place);

/* The linker puts all places of a program side by side, so that a misspelt name is known at the start. */
#define FAULT_PLACE(text, fails)                                                                                       \
    __extension__({                                                                                                    \
        static const struct fault_place fault_place_ __attribute__((section("fault_places"), used)) = {text, fails};   \
        fault_point(&fault_place_);                                                                                    \
    })

#define FAULT_START() fault_point_start()
#define FAULT_POINT(name) ((void)FAULT_PLACE(name, false))
#define FAULT_ERROR(name) FAULT_PLACE(name, true)

#else

#define FAULT_START() ((void)0)
#define FAULT_POINT(name) ((void)0)
#define FAULT_ERROR(name) false

#endif
