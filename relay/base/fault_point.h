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
 *
 * What was done is appended, one JSON line a fault, to the file PGCOURIER_FAULT_LOG before it is done. All of this
 * exists in builds with the option PGCOURIER_FAULT_POINTS only; in others a point is nothing at all. */
#ifndef RELAY_BASE_FAULT_POINT_H
#define RELAY_BASE_FAULT_POINT_H

#include <stdbool.h>

#ifdef PGCOURIER_FAULT_POINTS

/* True when the caller's step is to fail. Ends the process on a fault that cannot be read. */
bool fault_point(const char *name);

#define FAULT_POINT(name) ((void)fault_point(name))
#define FAULT_ERROR(name) fault_point(name)

#else

#define FAULT_POINT(name) ((void)0)
#define FAULT_ERROR(name) false

#endif

#endif
