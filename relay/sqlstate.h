/* relay/sqlstate.h -- what a PostgreSQL error means for the relay, by SQLSTATE. */
#ifndef RELAY_SQLSTATE_H
#define RELAY_SQLSTATE_H

#include "relay/base/error.h"

enum db_remedy {
    DB_RETRY,      /* roll back and try again after a short, growing wait */
    DB_RECONNECT,  /* this connection is of no more use */
    DB_UNPREPARED, /* a pooler shares sessions: reconnect and prepare nothing */
    DB_SHRINK,     /* the lock table is full: roll back, take fewer keys */
    DB_FIX         /* somebody has to mend something; keep trying, slowly, and say so */
};

struct sqlstate_rule {
    const char *prefix; /* of the SQLSTATE: 2 or 5 characters */
    enum db_remedy remedy;
    enum error_kind kind;
    const char *why;
    bool in_rows; /* what is in one row may be the cause, and others would pass */
};

/* The rule for `sqlstate` (NULL: the connection broke without one). Never NULL. */
const struct sqlstate_rule *sqlstate_rule(const char *sqlstate);

#endif
