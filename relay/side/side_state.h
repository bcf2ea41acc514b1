/* relay/side/side_state.h -- the side connection's own state: for side.c, side_start.c and their tests. */
#pragma once

#include "relay/base/clock.h"
#include "relay/postgres/db.h"
#include "relay/settle/round.h"

enum side_state {
    SIDE_OFF,
    SIDE_IDLE,
    SIDE_SETTLING,
    SIDE_PROBING,
    SIDE_CHECKING,
    SIDE_PEEKING,
    SIDE_UPKEEP,
    SIDE_RENEWING,
    SIDE_RESTING, /* it asks whether the queue may rest */
    SIDE_SEARCHING
};

/* The queue's other connection: settles lanes that must not wait for a claim's end, and asks small questions. */
struct side {
    struct db *db;
    enum side_state state;
    struct round round;
    char lock_timeout[24]; /* of its statements */
    size_t first; /* the index of the round's first statement; behind a pooler, lock_timeout is set before it */
    instant_us probe_at, retry_at;
    int64_t probe_interval_us;
    unsigned failures;
    bool probe_is_old;  /* the probe under way was sent before a new one was requested */
    bool settle_failed; /* and no probe was sent since: the next one goes first */
    bool searched;      /* the last round was part of a search: see relay/side/unreadable.h */
    bool ran_upkeep;    /* the last round was an upkeep task that goes ahead of settlements */
};
