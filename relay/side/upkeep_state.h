/* relay/side/upkeep_state.h -- when each regular task is due: for upkeep.c and its tests. */
#pragma once

#include "relay/base/clock.h"

#include <stdbool.h>
#include <stdint.h>

enum upkeep_task {
    UPKEEP_SERVING,
    UPKEEP_LOOK,
    UPKEEP_WINDOW,
    UPKEEP_LEASES,
    UPKEEP_DUE,
    UPKEEP_AFTER,
    UPKEEP_SCHEDULE,
    UPKEEP_DAYS,
    UPKEEP_EXPIRE,
    UPKEEP_PURGE,
    UPKEEP_TASKS
};

struct upkeep {
    instant_us due_at[UPKEEP_TASKS];
    enum upkeep_task task; /* under way */
    instant_us began_at;   /* that one */
    bool logged_paused;    /* the log says that the queue is paused */
    bool refused;          /* another relay serves the table by other locks: no pause is looked for meanwhile */
    instant_us found_at;   /* a claim has found the queue paused; -1: none has */
    int64_t due_to;        /* what had become due until then was found, in microseconds since 1970; 0: nobody looked */
    int64_t asked_to;      /* of the events that others wait for, those up to this one were asked about */
    uint64_t purged;       /* dead letters that are not logged yet */
};
